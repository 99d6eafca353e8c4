// The file format of tokenized text. The documents are stored one after the other, and a bit of each token says whether it is a target of
// the loss. All numbers are little-endian. The parts follow each other in this order:
//
//   header  128 bytes: magic "SPWDOCS\3", number of documents (u64), of tokens (u64), the largest id plus one (u64), number of lines read
//           (u64), of bad lines skipped (u64), of documents left out because they have no target (u64), of entries in `begins` (u64), bytes
//           of `unread` (u64), CRC32C of everything after the tokens (u32), CRC32C of the header up to here (u32), zeros
//   tokens  u32 each: the id; the highest bit is set if the token is no target
//   ends    u64 for each document: the number of tokens up to its end
//   begins  u64 each, ascending, for rows that came packed: the number of tokens before a document that shares a row with the one before it
//   sums    u32 for every 2,048 tokens, the last group may be shorter: their CRC32C
//   unread  a JSON object: the keys of lines that are not used, each with the number of lines that have it
//
// Throws Error(data) if a file is not of this format or is damaged. Tokens are verified against their checksums whenever they are read.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file_lock.h"
#include "data/documents/document_maker.h"
#include "data/files/beside.h"
#include "data/files/file.h"
#include "data/tokens/token_source.h"

namespace spillway::data {

struct PreparedCounts {
  i64 documents = 0, tokens = 0, least_vocabulary = 0;
  i64 lines = 0, bad_lines = 0, without_targets = 0;
  /// The number of lines that have a key which is not used, for each such key. From
  /// the 33rd different key on, the keys are counted together, under kOtherKeys.
  std::map<std::string, i64> unread{};
};
inline constexpr const char* kOtherKeys = "others";

class PreparedWriter {
 public:
  /// Writes the file under a temporary name next to `path`. finish() renames it to `path` and replaces an existing file at `path`.
  explicit PreparedWriter(const std::filesystem::path& path);

  /// Adds a document. A document that has no target after its first token is left out and counted in without_targets.
  void add(const Document& document);
  /// Adds tokens to the current document of plain text; all of them are targets.
  /// end_text() ends the document. A document without tokens is not added.
  void add_text(std::span<const i32> ids);
  void end_text();
  PreparedCounts& counts() { return counts_; }
  /// Moves the finished file to its final path, on stable storage.
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

/// Reads a file of tokenized documents. An open PreparedFile holds a shared flock on the file, so that
/// no process removes the file. Thread-safe. As a TokenSource it is the concatenation of all documents.
class PreparedFile final : public TokenSource {
 public:
  explicit PreparedFile(const std::filesystem::path& path, std::string name);
  const PreparedCounts& counts() const { return counts_; }
  const std::string& name() const override { return name_; }
  i64 tokens() const override { return counts_.tokens; }
  void read(i64 begin, std::span<i32> out) const override;

  i64 document_tokens(i64 document) const { return end(document) - begin(document); }
  /// Returns the positions within a document at which packed documents after the first begin,
  /// ascending. The list is empty unless the row of data already packed several documents.
  std::vector<i64> inner_begins(i64 document) const;
  bool came_packed() const { return !begins_.empty(); }
  /// Reads the document's first out.size() tokens as they are stored: the token's id, with bit kNoTarget set if the token is no target.
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
