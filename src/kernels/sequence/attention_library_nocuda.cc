#include "kernels/sequence/attention_library.h"

namespace spillway::kernels {

std::string missing_attention_library(int) { return "[attention] expected a build with CUDA for --attention cudnn, got one without"; }

std::string attention_shape_problem(const AttentionShape&) { return ""; }

i64 attention_library_bytes(const AttentionShape&) { return 0; }

std::string prepare_attention(const AttentionShape&, const std::string&) { return ""; }

}  // namespace spillway::kernels
