// LlmCFile reads the model files of llm.c (train_gpt2.py's write_model, and what its trainer saves): a header of 256 int32, then GPT-2's
// tensors in one fixed order, all fp32 or all bf16. The input is untrusted: every number of the header is checked, and all of them against
// the file's size, before anything is allocated by them. Tensors get Hugging Face's names and layout: the weights of linear layers, which
// the file stores transposed, are transposed back, and the padding rows of the token embedding are dropped. Errors: Error(data) "[llm.c]
// file: expected …, got …".
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/safetensors.h"

namespace spillway::data {

struct LlmCHeader {
  DType dtype = DType::f32;
  i64 positions = 0, vocabulary = 0, layers = 0, heads = 0, width = 0, padded_vocabulary = 0;
};

/// Returns true if the file begins with llm.c's magic number, whatever its version.
bool is_llm_c_file(const std::filesystem::path& path);

class LlmCFile {
 public:
  explicit LlmCFile(const std::filesystem::path& path);
  LlmCFile(LlmCFile&&) noexcept;
  ~LlmCFile();
  const LlmCHeader& header() const;
  /// Returns the tensors in the order of the file.
  const std::vector<TensorInfo>& tensors() const;
  const TensorInfo* find(const std::string& name) const;
  /// Copies elements [begin, begin + out.size()) of a tensor, widened to fp64. Reading in order is fast: for a matrix that the file stores
  /// transposed, a band of rows is cached. Thread-safe.
  void read_wide(const TensorInfo& tensor, i64 begin, std::span<double> out) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway::data
