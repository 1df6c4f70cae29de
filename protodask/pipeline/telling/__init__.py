"""What a run tells: results and events, and the logs, metrics and notifications made of them."""
