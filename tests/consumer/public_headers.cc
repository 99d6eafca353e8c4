// Includes all public headers of the installation in one file. Each of them must exist, and they must compile together.
#include "public_headers.inc"
