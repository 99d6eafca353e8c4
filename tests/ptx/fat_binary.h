// Finds the PTX in what nvcc puts into an object file for the CUDA runtime.
#pragma once
#include <string>

namespace ptx {

/// Returns the text of the PTX in the fat binary that __cudaRegisterFatBinary gets, or an empty string if it holds none. The text is
/// compressed by default (zstd). Throws std::runtime_error if it is packed in a way that is not known.
std::string ptx_of(const void* wrapper);

}  // namespace ptx
