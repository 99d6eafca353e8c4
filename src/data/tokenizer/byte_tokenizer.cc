#include "data/tokenizer/byte_tokenizer.h"

#include <utility>

#include "base/utf8.h"

namespace spillway::data {
namespace {

class ByteStream : public StreamDecoder {
 public:
  std::string put(i32 id) override {
    held_ += ByteTokenizer().decode(std::span(&id, 1));
    const size_t whole = held_.size() - static_cast<size_t>(unfinished_utf8(held_));
    std::string text = held_.substr(0, whole);
    held_.erase(0, whole);
    return text;
  }
  std::string finish() override { return std::exchange(held_, {}); }

 private:
  std::string held_;
};

}  // namespace

std::vector<i32> ByteTokenizer::encode(std::string_view text, bool) const {
  std::vector<i32> ids;
  ids.reserve(text.size());
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

Encoded ByteTokenizer::encode_with_ranges(std::string_view text, bool) const {
  Encoded encoded{encode(text), {}};
  encoded.ranges.reserve(text.size());
  for (i64 i = 0; i < static_cast<i64>(text.size()); ++i) encoded.ranges.push_back({i, i + 1});
  return encoded;
}

std::string ByteTokenizer::decode(std::span<const i32> ids, bool) const {
  std::string text;
  text.reserve(ids.size());
  for (const i32 id : ids) {
    if (id >= 0 && id < kVocabulary) {
      text += static_cast<char>(id);
    } else {
      text += kReplacementText;
    }
  }
  return text;
}

std::unique_ptr<StreamDecoder> ByteTokenizer::stream_decoder(bool) const { return std::make_unique<ByteStream>(); }

const Around& ByteTokenizer::around() const {
  static const Around none;
  return none;
}

std::optional<i32> ByteTokenizer::id_of(std::string_view token) const {
  if (token.size() != 1) return std::nullopt;
  return static_cast<unsigned char>(token[0]);
}

std::string ByteTokenizer::token(i32 id) const {
  return id >= 0 && id < kVocabulary ? std::string(1, static_cast<char>(id)) : std::string();
}

}  // namespace spillway::data
