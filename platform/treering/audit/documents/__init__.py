"""Questions about documents: which steps and checkpoints read them, what a batch held, how two checkpoints differ."""
