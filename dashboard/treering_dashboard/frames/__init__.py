"""What the pages show, as frames: read from run logs and audits, cached."""
