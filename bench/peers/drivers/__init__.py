"""One small driver per contestant."""
