// Tokenizes text files once, into a cache that all ranks and later runs share. The cache has one file for
// each path. The file's name contains a hash of the path's contents and of everything else that the tokens
// depend on. A file is written under a temporary name and renamed, so the cache holds complete files only
// (prepared_cache.h). If several processes want one file, one of them makes it and the others wait.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "data/documents/prepared_file.h"

namespace spillway::data {

struct PreparationOptions {
  std::filesystem::path cache;  // the cache folder, which is created if it is missing
  // Texts that identify the tokenizer and the chat template: the contents of their files, or a name.
  std::string tokenizer, chat;
  bool skip_bad_lines = false;  // rows of JSON Lines that are not valid are skipped and counted
  int threads = 1;
  /// A function that is called from time to time with the number of bytes read so far and the size of the file.
  std::function<void(const std::string& path, i64 done, i64 bytes)> progress = [](const std::string&, i64, i64) {};
  /// A function that is called with the name of another process while that
  /// process prepares data in the cache, and with "" when that process is done.
  std::function<void(const std::string& holder)> waits = [](const std::string&) {};
};

/// Returns true if the file at this path holds rows, each of which becomes a document. The name then ends in .jsonl, .jsonl.gz or
/// .jsonl.zst.
bool is_json_lines(const std::filesystem::path& path);
/// Returns true if the path is plain text: a file .txt, .txt.gz or .txt.zst, or a folder of such files. The files of a folder are read in
/// byte order of their names and joined by the end token.
bool is_plain_text(const std::filesystem::path& path);

/// Tokenizes plain text and passes the tokens to `sink`, some at a time. A file is one text. The tokens that the tokenizer puts around a
/// text are added once per file, and `end_token` is added at its end; tokens that the text has already are not added. Only the members
/// threads and progress of `options` are used. Throws Error(usage) if a text has more than 256 MiB and the tokenizer does not allow it to
/// be cut anywhere.
void tokenize_text(const std::filesystem::path& path, const Tokenizer& tokenizer, std::optional<i32> end_token,
                   const PreparationOptions& options, const std::function<void(std::span<const i32>)>& sink);

/// Returns the tokens of one path, from the cache if they are in it. Throws Error(data) for a line that
/// is not a valid row, unless skip_bad_lines is set, and Error(io) if the cache cannot be written.
std::unique_ptr<PreparedFile> prepare(const std::filesystem::path& path, const DocumentMaker& maker, const PreparationOptions& options);

}  // namespace spillway::data
