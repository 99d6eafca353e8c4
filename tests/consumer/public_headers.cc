// All public headers of the installation in one file: they are there, and they go together.
#include "public_headers.inc"
