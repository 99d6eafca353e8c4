// The model files of llm.c (train_gpt2.py's write_model, and what its trainer saves): a header of 256 int32, then GPT-2's tensors in one
// fixed order, all of fp32 or all of bf16. An untrusted input: every number of the header is checked, and all of them against the file's
// size, before anything is allocated by them. Tensors have Hugging Face's names and layout: linear layers lie the other way round in the
// file, and the token embedding's padding rows are not there. Errors: Error(data) "[llm.c] file: expected …, got …".
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

/// Whether it begins as they do, whatever their version.
bool is_llm_c_file(const std::filesystem::path& path);

class LlmCFile {
 public:
  explicit LlmCFile(const std::filesystem::path& path);
  LlmCFile(LlmCFile&&) noexcept;
  ~LlmCFile();
  const LlmCHeader& header() const;
  /// In the file's order.
  const std::vector<TensorInfo>& tensors() const;
  const TensorInfo* find(const std::string& name) const;
  /// Elements [begin, begin + out.size()) of a tensor, widened to fp64. Fast where it is read in order: of a matrix that lies the other way
  /// round a band is kept. Thread-safe.
  void read_wide(const TensorInfo& tensor, i64 begin, std::span<double> out) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway::data
