"""What the record of another trainer's run shows: what each step was fed, and what restarts repeated or skipped."""
