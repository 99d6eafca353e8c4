// Makes small tokenizer.json files for tests.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "data/tokenizer/hugging_face/hugging_face.h"

namespace spillway::test {

/// Returns a tokenizer of single ASCII characters and byte tokens, whose id is the byte. Members in `with` are added or replaced.
inline nlohmann::json small_tokenizer(const nlohmann::json& with = nlohmann::json::object()) {
  nlohmann::json vocabulary = nlohmann::json::object();
  for (unsigned i = 0; i < 256; ++i) vocabulary[data::byte_token(static_cast<unsigned char>(i))] = i;
  nlohmann::json file = {{"model", {{"type", "BPE"}, {"byte_fallback", true}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}},
                         {"decoder", {{"type", "Sequence"}, {"decoders", {{{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}}}};
  file.merge_patch(with);
  return file;
}

inline std::unique_ptr<data::Tokenizer> made_of(const nlohmann::json& file) {
  return std::make_unique<data::HuggingFaceTokenizer>(file, data::JsonPlace{"a.json", ""});
}

}  // namespace spillway::test
