// Reads SentencePiece's character map. The map consists of the size of the trie in bytes (u32),
// the trie, and the replacement texts, each of which ends with a zero byte. The trie is a double
// array of 32-bit units, as the library darts-clone writes it. All numbers are little-endian.
#include <array>
#include <cstring>
#include <optional>

#include "base/utf8.h"
#include "data/text/unicode.h"
#include "data/tokenizer/stages/normalizer.h"

namespace spillway::data {
namespace {

std::string from_base64(const std::string& text, const JsonPlace& place) {
  std::string bytes;
  u32 bits = 0;
  int count = 0;
  size_t end = text.size();
  while (end > 0 && text[end - 1] == '=') --end;
  for (size_t i = 0; i < end; ++i) {
    const char c = text[i];
    const int value = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    if (value < 0) refuse_value(place, "base64 text", "another character at " + std::to_string(i));
    bits = bits << 6 | static_cast<u32>(value);
    if ((count += 6) >= 8) {
      count -= 8;
      bytes += static_cast<char>(static_cast<unsigned char>(bits >> count & 0xFF));
    }
  }
  return bytes;
}

class Precompiled : public Normalizer {
 public:
  Precompiled(const std::string& bytes, const JsonPlace& place) {
    u32 trie_bytes = 0;
    if (bytes.size() >= 4) std::memcpy(&trie_bytes, bytes.data(), 4);
    if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > bytes.size() - 4) {
      refuse_value(place, "a trie of whole 4-byte units, followed by texts",
                   std::to_string(bytes.size()) + " bytes whose header says that the trie has " + std::to_string(trie_bytes));
    }
    units_.resize(trie_bytes / 4);
    std::memcpy(units_.data(), bytes.data() + 4, trie_bytes);
    texts_ = bytes.substr(4 + trie_bytes);
    if (!is_utf8(texts_)) refuse_value(place, "replacement texts in UTF-8", "other bytes");
  }

  /// Rewrites the text grapheme by grapheme. If a grapheme has less than 6 bytes and the map contains the grapheme or a prefix
  /// of it, the whole grapheme is replaced. Otherwise each character of the grapheme is looked up and replaced by itself.
  AlignedText operator()(const AlignedText& text) const override {
    Rewriter out(text);
    const std::string_view all = text.text;
    for (size_t at = 0; at < all.size();) {
      const size_t end = grapheme_end(all, at);
      if (end - at < 6 && replace(out, all, at, end)) {
        at = end;
        continue;
      }
      while (at < end) {
        const size_t begin = at;
        next_code(all, at);
        if (!replace(out, all, begin, at)) out.keep(begin, at);
      }
    }
    return out.take();
  }
  bool keeps_line_ends() const override { return false; }

 private:
  bool replace(Rewriter& out, std::string_view all, size_t begin, size_t end) const {
    const auto found = shortest(all.substr(begin, end - begin));
    if (found) out.put(*found, begin, end);
    return found.has_value();
  }

  static size_t offset(u32 unit) { return static_cast<size_t>(unit >> 10) << ((unit & (1u << 9)) >> 6); }

  /// Returns the replacement text of the shortest prefix of `key` that the map contains, or nothing if the map contains no prefix.
  std::optional<std::string_view> shortest(std::string_view key) const {
    size_t at = offset(units_[0]);
    for (const char c : key) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte == 0) break;
      at ^= byte;
      if (at >= units_.size() || (units_[at] & (1u << 31 | 0xFF)) != byte) break;
      const u32 unit = units_[at];
      at ^= offset(unit);
      if ((unit >> 8 & 1) == 0) continue;
      if (at >= units_.size()) break;
      const size_t begin = units_[at] & ~(1u << 31);
      if (begin > texts_.size() || (begin < texts_.size() && (static_cast<unsigned char>(texts_[begin]) & 0xC0) == 0x80)) break;
      return std::string_view(texts_).substr(begin, texts_.find('\0', begin) - begin);
    }
    return std::nullopt;
  }

  std::vector<u32> units_;
  std::string texts_;
};

}  // namespace

std::unique_ptr<Normalizer> read_precompiled(const std::string& base64, const JsonPlace& place) {
  return std::make_unique<Precompiled>(from_base64(base64, place), place);
}

}  // namespace spillway::data
