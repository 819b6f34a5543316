"""After a restart: sweep, reconcile, a person's repair, and the event stream."""
