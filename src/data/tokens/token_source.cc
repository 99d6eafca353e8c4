#include "data/tokens/token_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>

#include "base/error.h"
#include "data/files/wrong_data.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokens/token_format.h"

namespace spillway::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kStackBytes = 32768;  // the bytes of the read buffer, which is on the stack because reading happens during training

[[noreturn]] void reject_id(const fs::path& path, i64 token, i64 byte, i64 id, i64 vocabulary) {
  throw Error(ErrorCode::data, fmt::format("[data] {}: expected ids from 0 to {}, got {} at token {} (byte {}): the file was made for a "
                                           "larger vocabulary, or has another format than its name says",
                                           path.string(), vocabulary - 1, id, token, byte));
}

void check_range(const TokenSource& source, i64 begin, size_t count) {
  if (begin < 0 || begin > source.tokens() || static_cast<i64>(count) > source.tokens() - begin) {
    throw Error(ErrorCode::bug, fmt::format("[data] {}: tokens {} to {} are outside the source's {} tokens", source.name(), begin,
                                            begin + static_cast<i64>(count), source.tokens()));
  }
}

template <class T>
i64 widened(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return static_cast<i64>(value);
}

/// The tokens of a `.bin` file in any of the formats in token_format.h.
class BinSource final : public TokenSource {
 public:
  BinSource(const fs::path& path, i64 vocabulary) : file_(File::open(path)), layout_(token_layout(file_)), name_(path.string()) {
    check_ids(vocabulary);
  }
  const std::string& name() const override { return name_; }
  i64 tokens() const override { return layout_.tokens; }

  void read(i64 begin, std::span<i32> out) const override {
    check_range(*this, begin, out.size());
    for_each(begin, begin + static_cast<i64>(out.size()),
             [&](i64 token, i64 id) { out[static_cast<size_t>(token - begin)] = static_cast<i32>(id); });
  }

 private:
  template <class Use>
  void for_each(i64 begin, i64 end, const Use& use) const {
    switch (layout_.width_bytes) {
      case 1:
        return for_each_of<u8>(begin, end, use);
      case 4:
        return layout_.is_signed ? for_each_of<i32>(begin, end, use) : for_each_of<u32>(begin, end, use);
      case 8:
        return for_each_of<i64>(begin, end, use);
      default:
        return layout_.is_signed ? for_each_of<std::int16_t>(begin, end, use) : for_each_of<u16>(begin, end, use);
    }
  }

  template <class T, class Use>
  void for_each_of(i64 begin, i64 end, const Use& use) const {
    constexpr i64 kWidth = sizeof(T), kStep = static_cast<i64>(kStackBytes) / kWidth;
    std::array<std::byte, kStackBytes> raw;
    for (i64 at = begin; at < end; at += kStep) {
      const i64 n = std::min(kStep, end - at);
      file_.read(layout_.begin_bytes + at * kWidth, std::span(raw).first(static_cast<size_t>(n * kWidth)));
      for (i64 i = 0; i < n; ++i) use(at + i, widened<T>(raw.data() + i * kWidth));
    }
  }

  // Reads the whole file once, before training, and checks that all ids are below
  // `vocabulary`. The check is skipped if ids of the file's width cannot be too large.
  void check_ids(i64 vocabulary) const {
    const bool any_fits = !layout_.is_signed && layout_.width_bytes <= 2 && vocabulary >= i64{1} << (8 * layout_.width_bytes);
    if (any_fits) return;
    for_each(0, layout_.tokens, [&](i64 token, i64 id) {
      if (id < 0 || id >= vocabulary) reject_id(file_.path(), token, layout_.begin_bytes + token * layout_.width_bytes, id, vocabulary);
    });
  }

  File file_;
  TokenLayout layout_;
  std::string name_;
};

/// A text that goes through the byte tokenizer: one file, or several files that are read as if they were concatenated.
class TextSource final : public TokenSource {
 public:
  TextSource(std::string name, const std::vector<fs::path>& paths, i64 vocabulary) : name_(std::move(name)) {
    for (const fs::path& path : paths) {
      File file = File::open(path);
      parts_.push_back({path, bytes_, {}});
      bytes_ += file.size_bytes();
      if (vocabulary < ByteTokenizer::kVocabulary) check_ids(file, vocabulary);
      if (paths.size() <= kKeptOpen) parts_.back().file.emplace(std::move(file));
    }
  }
  const std::string& name() const override { return name_; }
  i64 tokens() const override { return bytes_; }

  void read(i64 begin, std::span<i32> out) const override {
    check_range(*this, begin, out.size());
    // `part` is the last part that begins at or before `begin`. If several parts begin at one position, all but the last of them are empty.
    auto part = std::prev(std::ranges::upper_bound(parts_, begin, {}, &Part::begin_bytes));
    while (!out.empty()) {
      const i64 part_end = std::next(part) == parts_.end() ? bytes_ : std::next(part)->begin_bytes;
      const auto n = std::min(out.size(), static_cast<size_t>(part_end - begin));
      read_part(*part, begin - part->begin_bytes, out.first(n));
      out = out.subspan(n);
      begin += static_cast<i64>(n);
      ++part;
    }
  }

 private:
  struct Part {
    fs::path path;
    i64 begin_bytes;
    std::optional<File> file;
  };
  // The largest number of files that are kept open. A folder may hold more files
  // than a process may have open; in that case each file is opened when it is read.
  static constexpr size_t kKeptOpen = 256;

  static void read_part(const Part& part, i64 offset, std::span<i32> out) {
    if (!part.file) return read_bytes(File::open(part.path), offset, out);
    read_bytes(*part.file, offset, out);
  }

  static void read_bytes(const File& file, i64 offset, std::span<i32> out) {
    std::array<std::byte, kStackBytes> raw;
    while (!out.empty()) {
      const size_t n = std::min(out.size(), raw.size());
      file.read(offset, std::span(raw).first(n));
      for (size_t i = 0; i < n; ++i) out[i] = std::to_integer<i32>(raw[i]);
      out = out.subspan(n);
      offset += static_cast<i64>(n);
    }
  }

  static void check_ids(const File& file, i64 vocabulary) {
    std::array<std::byte, kStackBytes> raw;
    for (i64 at = 0; at < file.size_bytes(); at += static_cast<i64>(raw.size())) {
      const auto n = std::min(raw.size(), static_cast<size_t>(file.size_bytes() - at));
      file.read(at, std::span(raw).first(n));
      for (size_t i = 0; i < n; ++i) {
        const i64 id = std::to_integer<i64>(raw[i]), where = at + static_cast<i64>(i);
        if (id >= vocabulary) reject_id(file.path(), where, where, id, vocabulary);
      }
    }
  }

  std::string name_;
  std::vector<Part> parts_;
  i64 bytes_ = 0;
};

std::vector<fs::path> texts_in(const fs::path& folder) {
  std::vector<fs::path> paths;
  try {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.is_regular_file() && entry.path().extension() == ".txt") paths.push_back(entry.path());
    }
  } catch (const fs::filesystem_error& e) {
    throw Error(ErrorCode::data, fmt::format("[data] cannot list the folder {}: {}", folder.string(), e.code().message()));
  }
  if (paths.empty()) refuse_without_texts(folder);
  std::ranges::sort(paths, {}, [](const fs::path& p) { return p.filename().string(); });  // the order is by bytes, whatever the locale
  return paths;
}

std::unique_ptr<TokenSource> open_one(const fs::path& path, i64 vocabulary) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) refuse_missing(path);
  if (!fs::exists(status)) throw Error(ErrorCode::data, fmt::format("[data] cannot look at {}: {}", path.string(), error.message()));
  if (fs::is_directory(status)) return std::make_unique<TextSource>(path.string(), texts_in(path), vocabulary);
  if (path.extension() == ".txt") return std::make_unique<TextSource>(path.string(), std::vector{path}, vocabulary);
  if (path.extension() == ".bin") return std::make_unique<BinSource>(path, vocabulary);
  refuse_kind(path);
}

}  // namespace

std::vector<std::unique_ptr<TokenSource>> open_token_sources(const std::vector<std::string>& paths, i64 vocabulary) {
  if (vocabulary < 1 || vocabulary > kAnyVocabulary) {
    throw Error(ErrorCode::usage, fmt::format("[data] expected a vocabulary from 1 to 2^31, got {}", vocabulary));
  }
  std::vector<std::unique_ptr<TokenSource>> sources;
  for (const std::string& path : paths) sources.push_back(open_one(path, vocabulary));
  return sources;
}

}  // namespace spillway::data
