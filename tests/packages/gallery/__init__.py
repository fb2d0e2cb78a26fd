"""An app with a picture and a maintenance task."""
