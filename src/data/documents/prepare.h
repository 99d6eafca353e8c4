// Text made into tokens once, beside the data or the runs, for all ranks and later runs: a file for each path, named after its contents and
// everything that its tokens depend on. Written beside and renamed: whole or not there (prepared_cache.h). Processes that want the same one
// wait for each other.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "data/documents/prepared_file.h"

namespace spillway::data {

struct PreparationOptions {
  std::filesystem::path cache;  // a folder, made where it is not there
  std::string tokenizer, chat;  // what tells these from others: their files' contents, or a name
  bool skip_bad_lines = false;  // JSON Lines: a line that is no row is counted and left out
  int threads = 1;
  /// Now and then, with the bytes read and all there are.
  std::function<void(const std::string& path, i64 done, i64 bytes)> progress = [](const std::string&, i64, i64) {};
  /// Called while another process prepares data in the cache, with its name, and with "" once it is done.
  std::function<void(const std::string& holder)> waits = [](const std::string&) {};
};

/// Whether the path is text to prepare as documents, a row each: .jsonl, .jsonl.gz, .jsonl.zst.
bool is_json_lines(const std::filesystem::path& path);
/// Or as a stream: .txt, .txt.gz, .txt.zst, or a folder of such in byte order of their names, whose files are joined by the end token.
bool is_plain_text(const std::filesystem::path& path);

/// The tokens of plain text, some at a time. A file is one text: it has what the tokenizer puts around a text once, and `end_token` behind
/// it, unless the text has them. `options` for threads and progress alone. Error(usage): the tokenizer allows no cut in a text of more than
/// 256 MiB.
void tokenize_text(const std::filesystem::path& path, const Tokenizer& tokenizer, std::optional<i32> end_token,
                   const PreparationOptions& options, const std::function<void(std::span<const i32>)>& sink);

/// The tokens of one path. Error(data): a bad line, unless those are skipped; Error(io): the cache cannot be written.
std::unique_ptr<PreparedFile> prepare(const std::filesystem::path& path, const DocumentMaker& maker, const PreparationOptions& options);

}  // namespace spillway::data
