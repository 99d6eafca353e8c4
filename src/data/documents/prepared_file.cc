#include "data/documents/prepared_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/crc32c.h"
#include "base/error.h"

namespace spillway::data {
namespace {

constexpr i64 kHeaderBytes = 128;
constexpr size_t kPending = 16384;
constexpr std::array<char, 8> kMagic{'S', 'P', 'W', 'D', 'O', 'C', 'S', '\1'};
constexpr i64 kMostTokens = i64{1} << 44, kMostDocuments = (i64{1} << 32) - 2;

struct Header {
  std::array<char, 8> magic = kMagic;
  u64 documents = 0, tokens = 0, least_vocabulary = 0, lines = 0, bad_lines = 0, without_targets = 0;
  u32 ends_sum = 0, sum = 0;
  std::array<char, 64> zeros{};
  u32 own_sum() const { return crc32c(std::as_bytes(std::span(this, 1)).first(offsetof(Header, sum))); }
};
static_assert(sizeof(Header) == kHeaderBytes);

}  // namespace

PreparedWriter::PreparedWriter(const std::filesystem::path& path) : file_(File::create(path)) { pending_.reserve(kPending); }

PreparedWriter::~PreparedWriter() {
  std::error_code ignored;
  if (!finished_) std::filesystem::remove(file_.path(), ignored);
}

void PreparedWriter::put(u32 word) {
  pending_.push_back(word);
  ++counts_.tokens;
  counts_.least_vocabulary = std::max(counts_.least_vocabulary, static_cast<i64>(word & ~PreparedFile::kNoTarget) + 1);
  if (pending_.size() == kPending) flush();
}

void PreparedWriter::flush() {
  file_.write(kHeaderBytes + flushed_ * 4, std::as_bytes(std::span(pending_)));
  flushed_ += std::ssize(pending_);
  pending_.clear();
}

void PreparedWriter::add(const Document& document) {
  if (std::find(document.counted.begin() + std::min<i64>(1, std::ssize(document.counted)), document.counted.end(), 1) ==
      document.counted.end()) {
    ++counts_.without_targets;
    return;
  }
  for (size_t i = 0; i < document.ids.size(); ++i)
    put(static_cast<u32>(document.ids[i]) | (document.counted[i] ? 0 : PreparedFile::kNoTarget));
  end_text();
}

void PreparedWriter::add_text(std::span<const i32> ids) {
  for (const i32 id : ids) put(static_cast<u32>(id));
}

void PreparedWriter::end_text() {
  ends_.push_back(static_cast<u64>(counts_.tokens));
  if (std::ssize(ends_) > kMostDocuments)
    throw Error(ErrorCode::usage,
                fmt::format("[data] {}: expected fewer than 2^32 documents: give them as several files", file_.path().string()));
}

void PreparedWriter::finish() {
  flush();
  counts_.documents = std::ssize(ends_);
  const auto ends = std::as_bytes(std::span(ends_));
  file_.write(kHeaderBytes + counts_.tokens * 4, ends);
  Header header;
  header.documents = static_cast<u64>(counts_.documents), header.tokens = static_cast<u64>(counts_.tokens);
  header.least_vocabulary = static_cast<u64>(counts_.least_vocabulary);
  header.lines = static_cast<u64>(counts_.lines), header.bad_lines = static_cast<u64>(counts_.bad_lines);
  header.without_targets = static_cast<u64>(counts_.without_targets);
  header.ends_sum = crc32c(ends);
  header.sum = header.own_sum();
  file_.write(0, std::as_bytes(std::span(&header, 1)));
  file_.sync();
  file_.close();
  finished_ = true;
}

PreparedFile::PreparedFile(const std::filesystem::path& path, std::string name)
    : file_(File::open(path)), lock_(FileLock::take(file_.descriptor(), path, FileLock::Kind::look)), name_(std::move(name)) {
  const auto damaged = [&](const char* what) {
    throw Error(ErrorCode::data,
                fmt::format("[data] {} is no tokenized text, or damaged: {}; remove it, and it is made anew", path.string(), what));
  };
  Header header;
  if (file_.size_bytes() < kHeaderBytes) damaged("it is shorter than its header");
  file_.read(0, std::as_writable_bytes(std::span(&header, 1)));
  if (header.magic != kMagic || header.sum != header.own_sum()) damaged("its header");
  if (header.tokens > static_cast<u64>(kMostTokens) || header.documents > static_cast<u64>(kMostDocuments)) damaged("its header");
  counts_ = {static_cast<i64>(header.documents), static_cast<i64>(header.tokens),    static_cast<i64>(header.least_vocabulary),
             static_cast<i64>(header.lines),     static_cast<i64>(header.bad_lines), static_cast<i64>(header.without_targets)};
  if (file_.size_bytes() != kHeaderBytes + counts_.tokens * 4 + counts_.documents * 8) damaged("its size");
  ends_.resize(static_cast<size_t>(counts_.documents));
  file_.read(kHeaderBytes + counts_.tokens * 4, std::as_writable_bytes(std::span(ends_)));
  if (header.ends_sum != crc32c(std::as_bytes(std::span(ends_)))) damaged("where its documents end");
  if (!std::ranges::is_sorted(ends_) || (ends_.empty() ? counts_.tokens != 0 : ends_.back() != header.tokens))
    damaged("where its documents end");
}

void PreparedFile::read_words(i64 begin, std::span<u32> out) const {
  require(begin >= 0 && begin + std::ssize(out) <= counts_.tokens, "[data] tokens beyond the end of what was prepared");
  file_.read(kHeaderBytes + begin * 4, std::as_writable_bytes(out));
}

void PreparedFile::read(i64 begin, std::span<i32> out) const {
  std::array<u32, 8192> words;
  while (!out.empty()) {
    const auto some = std::span(words).first(std::min(words.size(), out.size()));
    read_words(begin, some);
    std::ranges::transform(some, out.begin(), [](u32 word) { return static_cast<i32>(word & ~kNoTarget); });
    begin += std::ssize(some);
    out = out.subspan(some.size());
  }
}

void PreparedFile::read_document(i64 document, std::span<u32> out) const {
  require(std::ssize(out) <= document_tokens(document), "[data] more tokens than the document has");
  read_words(begin(document), out);
}

}  // namespace spillway::data
