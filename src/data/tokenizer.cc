#include "data/tokenizer.h"

namespace spillway::data {

std::vector<i32> ByteTokenizer::encode(std::string_view text) const {
  std::vector<i32> ids;
  ids.reserve(text.size());
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

std::string ByteTokenizer::decode(std::span<const i32> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (const i32 id : ids) {
    if (id >= 0 && id < kVocabulary) {
      text += static_cast<char>(id);
    } else {
      text += "\xEF\xBF\xBD";
    }
  }
  return text;
}

}  // namespace spillway::data
