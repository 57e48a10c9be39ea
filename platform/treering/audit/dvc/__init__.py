"""What DVC recorded and stores: lineage of a checkpoint, the cache, remotes, and where a digest is found."""
