// LlmCFile reads the model files of llm.c (train_gpt2.py's write_model, and what its trainer saves): a header of 256
// int32, then GPT-2's tensors in one fixed order, all fp32 or all bf16. The input is untrusted: each number of the header
// is checked by itself, and the tensors' total size against the file's size, before memory is allocated by them. Tensors
// get Hugging Face's names and layout. The file stores the weights of linear layers transposed; LlmCFile transposes them
// back and drops the padding rows of the token embedding. Throws Error(data) "[llm.c] file: expected …, got …".
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/safetensors/tensor_reader.h"

namespace spillway::data {

struct LlmCHeader {
  DType dtype = DType::f32;
  i64 positions = 0, vocabulary = 0, layers = 0, heads = 0, width = 0, padded_vocabulary = 0;
};

/// Returns true if the file begins with llm.c's magic number, whatever its version.
bool is_llm_c_file(const std::filesystem::path& path);

/// Reading a tensor from its beginning to its end is fast, even if the file stores it transposed: a range of rows is then transposed at a
/// time and cached.
class LlmCFile : public TensorReader {
 public:
  explicit LlmCFile(const std::filesystem::path& path);
  ~LlmCFile() override;
  const LlmCHeader& header() const;

 private:
  void widen(const TensorInfo& tensor, i64 begin, std::span<double> out) const override;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway::data
