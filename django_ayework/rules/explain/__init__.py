"""Why a work is not running: facts in, reasons in words out."""
