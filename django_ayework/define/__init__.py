"""How people describe work: decorators, requests, instructions. No Django import."""
