"""Files that describe machines and servers, held against the code and against their schemas."""
