"""An app that audits the installed Python packages, one work per package."""
