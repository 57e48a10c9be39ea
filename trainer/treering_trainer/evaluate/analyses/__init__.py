"""What is recorded of checkpoints beside their scores; outside the digest of the scoring, so scores stay valid."""
