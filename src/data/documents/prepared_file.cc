#include "data/documents/prepared_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/json.h"

namespace spillway::data {
namespace {

constexpr i64 kHeaderBytes = 128;
// The number of tokens that share a checksum. It is small because reading
// a row means reading every group of tokens that it touches, whole.
constexpr size_t kSummed = 2048;
constexpr size_t kPending = 8 * kSummed;
constexpr std::array<char, 8> kMagic{'S', 'P', 'W', 'D', 'O', 'C', 'S', '\3'};
constexpr i64 kMostTokens = i64{1} << 44, kMostDocuments = (i64{1} << 32) - 2;

struct Header {
  std::array<char, 8> magic = kMagic;
  u64 documents = 0, tokens = 0, least_vocabulary = 0, lines = 0, bad_lines = 0, without_targets = 0, begins = 0, unread_bytes = 0;
  u32 tail_sum = 0, sum = 0;
  std::array<char, 48> zeros{};
  u32 own_sum() const { return crc32c(std::as_bytes(std::span(this, 1)).first(offsetof(Header, sum))); }
};
static_assert(sizeof(Header) == kHeaderBytes);

constexpr size_t kMostUnread = 32, kMostKeyBytes = 256;
constexpr u64 kMostUnreadBytes = 1 << 20;

std::vector<std::byte> tail_of(std::span<const u64> ends, std::span<const u64> begins, std::span<const u32> sums,
                               const std::string& unread) {
  std::vector<std::byte> tail;
  for (const auto part : {std::as_bytes(ends), std::as_bytes(begins), std::as_bytes(sums), std::as_bytes(std::span(unread))})
    tail.insert(tail.end(), part.begin(), part.end());
  return tail;
}

}  // namespace

PreparedWriter::PreparedWriter(const std::filesystem::path& path) : file_(path, Existing::overwrite) { pending_.reserve(kPending); }

void PreparedWriter::put(u32 word) {
  pending_.push_back(word);
  ++counts_.tokens;
  counts_.least_vocabulary = std::max(counts_.least_vocabulary, static_cast<i64>(word & ~PreparedFile::kNoTarget) + 1);
  if (pending_.size() == kPending) flush();
}

void PreparedWriter::flush() {
  file_.file().write(kHeaderBytes + flushed_ * 4, std::as_bytes(std::span(pending_)));
  for (size_t at = 0; at < pending_.size(); at += kSummed)
    sums_.push_back(crc32c(std::as_bytes(std::span(pending_).subspan(at, std::min(kSummed, pending_.size() - at)))));
  flushed_ += std::ssize(pending_);
  pending_.clear();
}

void PreparedWriter::note_unread(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    const std::string name = key.substr(0, kMostKeyBytes);
    ++counts_.unread[counts_.unread.size() < kMostUnread || counts_.unread.contains(name) ? name : kOtherKeys];
  }
}

void PreparedWriter::add(const Document& document) {
  note_unread(document.unread);
  if (std::find(document.counted.begin() + std::min<i64>(1, std::ssize(document.counted)), document.counted.end(), 1) ==
      document.counted.end()) {
    ++counts_.without_targets;
    return;
  }
  for (const u32 begin : document.begins) begins_.push_back(static_cast<u64>(counts_.tokens) + begin);
  for (size_t i = 0; i < document.ids.size(); ++i)
    put(static_cast<u32>(document.ids[i]) | (document.counted[i] ? 0 : PreparedFile::kNoTarget));
  end_text();
}

void PreparedWriter::add_text(std::span<const i32> ids) {
  for (const i32 id : ids) put(static_cast<u32>(id));
}

void PreparedWriter::end_text() {
  if (counts_.tokens == (ends_.empty() ? 0 : static_cast<i64>(ends_.back()))) return;
  ends_.push_back(static_cast<u64>(counts_.tokens));
  if (std::ssize(ends_) > kMostDocuments)
    throw Error(ErrorCode::usage, fmt::format("[data] {}: expected fewer than 2^32 documents, got more: split the data into several files",
                                              file_.final_path().string()));
}

void PreparedWriter::finish() {
  flush();
  counts_.documents = std::ssize(ends_);
  const std::string unread = nlohmann::json(counts_.unread).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  const std::vector<std::byte> tail = tail_of(ends_, begins_, sums_, unread);
  file_.file().write(kHeaderBytes + counts_.tokens * 4, tail);
  Header header;
  header.documents = static_cast<u64>(counts_.documents), header.tokens = static_cast<u64>(counts_.tokens);
  header.least_vocabulary = static_cast<u64>(counts_.least_vocabulary);
  header.lines = static_cast<u64>(counts_.lines), header.bad_lines = static_cast<u64>(counts_.bad_lines);
  header.without_targets = static_cast<u64>(counts_.without_targets);
  header.begins = begins_.size(), header.unread_bytes = unread.size();
  header.tail_sum = crc32c(tail);
  header.sum = header.own_sum();
  file_.file().write(0, std::as_bytes(std::span(&header, 1)));
  file_.commit();
}

PreparedFile::PreparedFile(const std::filesystem::path& path, std::string name)
    : file_(File::open(path)), lock_(FileLock::take(file_.descriptor(), path, FileLock::Kind::look)), name_(std::move(name)) {
  const auto damaged = [&](const char* what) {
    throw Error(
        ErrorCode::data,
        fmt::format("[data] {} is not a cache of tokenized text, or is damaged: {}; remove the file, and the next run writes it again",
                    path.string(), what));
  };
  Header header;
  if (file_.size_bytes() < kHeaderBytes) damaged("the file is shorter than its header");
  file_.read(0, std::as_writable_bytes(std::span(&header, 1)));
  if (header.magic != kMagic || header.sum != header.own_sum()) damaged("the header is wrong");
  if (header.tokens > static_cast<u64>(kMostTokens) || header.documents > static_cast<u64>(kMostDocuments)) damaged("the header is wrong");
  if (header.begins > header.tokens || header.unread_bytes > kMostUnreadBytes) damaged("the header is wrong");
  counts_ = {static_cast<i64>(header.documents), static_cast<i64>(header.tokens),    static_cast<i64>(header.least_vocabulary),
             static_cast<i64>(header.lines),     static_cast<i64>(header.bad_lines), static_cast<i64>(header.without_targets)};
  const i64 words = counts_.documents + static_cast<i64>(header.begins), unread_bytes = static_cast<i64>(header.unread_bytes);
  const i64 sums = ceil_div(counts_.tokens, kSummed);
  if (file_.size_bytes() != kHeaderBytes + counts_.tokens * 4 + words * 8 + sums * 4 + unread_bytes)
    damaged("the size of the file does not match its header");
  ends_.resize(static_cast<size_t>(counts_.documents));
  begins_.resize(static_cast<size_t>(header.begins));
  sums_.resize(static_cast<size_t>(sums));
  std::string unread(static_cast<size_t>(unread_bytes), '\0');
  i64 at = kHeaderBytes + counts_.tokens * 4;
  for (const auto part : {std::as_writable_bytes(std::span(ends_)), std::as_writable_bytes(std::span(begins_)),
                          std::as_writable_bytes(std::span(sums_)), std::as_writable_bytes(std::span(unread))}) {
    file_.read(at, part);
    at += std::ssize(part);
  }
  if (header.tail_sum != crc32c(tail_of(ends_, begins_, sums_, unread))) damaged("the table of document ends is wrong");
  if (std::ranges::adjacent_find(ends_, std::greater_equal()) != ends_.end() || (!ends_.empty() && ends_.front() == 0) ||
      (ends_.empty() ? counts_.tokens != 0 : ends_.back() != header.tokens))
    damaged("the table of document ends is wrong");
  if (!std::ranges::is_sorted(begins_) || (!begins_.empty() && begins_.back() >= header.tokens))
    damaged("the table of document beginnings is wrong");
  const auto keys = parse_json(unread);
  if (!keys.is_object()) damaged("the table of unread keys is wrong");
  for (const auto& [key, lines] : keys.items()) counts_.unread[key] = lines.is_number_integer() ? lines.get<i64>() : 0;
}

std::vector<i64> PreparedFile::inner_begins(i64 document) const {
  const auto first = std::ranges::upper_bound(begins_, static_cast<u64>(begin(document)));
  const auto last = std::lower_bound(first, begins_.end(), static_cast<u64>(end(document)));
  std::vector<i64> inner;
  for (auto at = first; at != last; ++at) inner.push_back(static_cast<i64>(*at) - begin(document));
  return inner;
}

void PreparedFile::read_words(i64 begin, std::span<u32> out) const {
  require(begin >= 0 && begin + std::ssize(out) <= counts_.tokens, "[data] expected a range of tokens inside the prepared file");
  constexpr i64 kBlock = kSummed;
  std::array<u32, kSummed> block;
  while (!out.empty()) {
    const i64 number = begin / kBlock, first = number * kBlock;
    const auto whole = std::span(block).first(static_cast<size_t>(std::min(kBlock, counts_.tokens - first)));
    file_.read(kHeaderBytes + first * 4, std::as_writable_bytes(whole));
    if (crc32c(std::as_bytes(whole)) != sums_[static_cast<size_t>(number)]) {
      throw Error(
          ErrorCode::data,
          fmt::format(
              "[data] {} is damaged: tokens {} to {} are not those that were written; remove the file, and the next run writes it again",
              file_.path().string(), first, first + std::ssize(whole)));
    }
    const auto some = whole.subspan(static_cast<size_t>(begin - first));
    const size_t count = std::min(some.size(), out.size());
    std::ranges::copy(some.first(count), out.begin());
    begin += static_cast<i64>(count);
    out = out.subspan(count);
  }
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
  require(std::ssize(out) <= document_tokens(document), "[data] expected to read at most as many tokens as the document has");
  read_words(begin(document), out);
}

}  // namespace spillway::data
