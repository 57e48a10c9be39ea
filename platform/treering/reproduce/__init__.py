"""Makes a recorded run again, and says why two runs differ."""
