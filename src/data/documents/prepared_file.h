// Tokenized text on disk, as preparation leaves it: documents one after the other, with which tokens count. Little-endian:
//
//   header  128 bytes: magic "SPWDOCS\3", documents (u64), tokens (u64), one more than the largest id (u64), lines read (u64), lines left
//           out (u64), documents left out for having nothing that counts (u64), inner begins (u64), bytes of the unread keys (u64), CRC32C
//           of all behind the tokens (u32), of the header up to here (u32), zeros
//   tokens  u32 each: the id, and in the highest bit whether it is no target
//   ends    u64 each document: the number of tokens up to its end
//   begins  u64 each: the number of tokens before a document that shares the row of the one before it, ascending (rows that came packed)
//   sums    u32 for every 2,048 tokens, the last ones perhaps fewer: their CRC32C
//   unread  the keys that lines have and nobody reads, with the number of lines that have them: a JSON object
//
// Errors: Error(data) for a file that is none or damaged; tokens are compared with their sums whenever they are read.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file_lock.h"
#include "data/beside.h"
#include "data/documents/document_maker.h"
#include "data/file.h"
#include "data/token_source.h"

namespace spillway::data {

struct PreparedCounts {
  i64 documents = 0, tokens = 0, least_vocabulary = 0;
  i64 lines = 0, bad_lines = 0, without_targets = 0;
  /// Keys of lines that are not read, with the number of lines that have them; of the 33rd key on together, as kOtherKeys.
  std::map<std::string, i64> unread{};
};
inline constexpr const char* kOtherKeys = "others";

class PreparedWriter {
 public:
  /// It is written beside `path` and replaces what is there when it is whole.
  explicit PreparedWriter(const std::filesystem::path& path);

  /// A document without a token that counts beyond its first is left out, and said in the counts.
  void add(const Document& document);
  /// Some more of a document of a stream of text, whose tokens all count; end_text() ends it. One without tokens is none.
  void add_text(std::span<const i32> ids);
  void end_text();
  PreparedCounts& counts() { return counts_; }
  /// Puts the file in place, on stable storage.
  void finish();

 private:
  void put(u32 word);
  void flush();
  void note_unread(const std::vector<std::string>& keys);
  AtomicFile file_;
  PreparedCounts counts_;
  std::vector<u32> pending_, sums_;
  std::vector<u64> ends_, begins_;
  i64 flushed_ = 0;
};

/// Locked by flock, shared, while it is open: nobody removes it. Thread-safe. As a token source it is all documents in a row.
class PreparedFile final : public TokenSource {
 public:
  explicit PreparedFile(const std::filesystem::path& path, std::string name);
  const PreparedCounts& counts() const { return counts_; }
  const std::string& name() const override { return name_; }
  i64 tokens() const override { return counts_.tokens; }
  void read(i64 begin, std::span<i32> out) const override;

  i64 document_tokens(i64 document) const { return end(document) - begin(document); }
  /// Where in the document further ones begin that came packed into one row with it, ascending.
  std::vector<i64> inner_begins(i64 document) const;
  bool came_packed() const { return !begins_.empty(); }
  /// The document's first out.size() tokens, as they are stored: kNoTarget is set where one is none.
  void read_document(i64 document, std::span<u32> out) const;
  static constexpr u32 kNoTarget = u32{1} << 31;

 private:
  i64 begin(i64 document) const { return document == 0 ? 0 : end(document - 1); }
  i64 end(i64 document) const { return static_cast<i64>(ends_[static_cast<size_t>(document)]); }
  void read_words(i64 begin, std::span<u32> out) const;

  File file_;
  std::optional<FileLock> lock_;
  PreparedCounts counts_;
  std::vector<u64> ends_, begins_;
  std::vector<u32> sums_;
  std::string name_;
};

}  // namespace spillway::data
