// Tokenizes text files once, into a cache that all ranks and later runs share. The cache has one file for each path, named after a hash of
// its contents and of everything else that its tokens depend on. A file is written under a temporary name and renamed, so it is complete or
// absent (prepared_cache.h). Processes that want the same file wait for each other.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "data/documents/prepared_file.h"

namespace spillway::data {

struct PreparationOptions {
  std::filesystem::path cache;  // cache folder; created if missing
  // Identify the tokenizer and the chat template, by their files' contents or by a name.
  std::string tokenizer, chat;
  bool skip_bad_lines = false;  // JSON Lines: skip and count a line that is no valid row
  int threads = 1;
  /// Called now and then with the bytes read so far and the size of the file.
  std::function<void(const std::string& path, i64 done, i64 bytes)> progress = [](const std::string&, i64, i64) {};
  /// Called with the name of another process while that one prepares data in the cache, and with "" once it is done.
  std::function<void(const std::string& holder)> waits = [](const std::string&) {};
};

/// Returns true if the path names rows, each of which becomes a document: .jsonl, .jsonl.gz, .jsonl.zst.
bool is_json_lines(const std::filesystem::path& path);
/// Returns true if the path names plain text: .txt, .txt.gz, .txt.zst, or a folder of such files. A folder's files are taken in byte order
/// of their names and joined by the end token.
bool is_plain_text(const std::filesystem::path& path);

/// Tokenizes plain text and passes the tokens to `sink`, some at a time. A file is one text: what the tokenizer puts around a text is added
/// once per file, and `end_token` after it, unless the text has them already. `options` provides threads and progress only. Throws
/// Error(usage) if the tokenizer allows no cut in a text of more than 256 MiB.
void tokenize_text(const std::filesystem::path& path, const Tokenizer& tokenizer, std::optional<i32> end_token,
                   const PreparationOptions& options, const std::function<void(std::span<const i32>)>& sink);

/// Returns the tokens of one path, from the cache if they are there. Throws Error(data) for a bad line, unless those are skipped, and
/// Error(io) if the cache cannot be written.
std::unique_ptr<PreparedFile> prepare(const std::filesystem::path& path, const DocumentMaker& maker, const PreparationOptions& options);

}  // namespace spillway::data
