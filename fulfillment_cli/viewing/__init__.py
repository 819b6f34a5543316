"""What happened to an order, and what is safe to do now: lists, stories, pages."""
