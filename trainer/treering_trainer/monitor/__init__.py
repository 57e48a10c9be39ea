"""What watches a training from outside its numbers: processes, heartbeats, the watchdog, hooks around the steps."""
