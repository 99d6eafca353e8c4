#include "data/documents/prepare.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/thread_pool.h"
#include "data/documents/content_hash.h"
#include "data/documents/line_reader.h"
#include "data/documents/prepared_cache.h"
#include "data/files/wrong_data.h"

namespace spillway::data {
namespace {

namespace fs = std::filesystem;

// The version of the rules that turn lines into documents. A cached file that was made under an older version is not used.
constexpr u32 kVersion = 3;
constexpr size_t kBatchBytes = 1 << 20, kPieceBytes = 1 << 22;
// The largest text that may be tokenized whole, which is done when the tokenizer gives no position at which the text may be cut.
constexpr i64 kMostWholeText = 256 * kMiB;

bool has_ending(const fs::path& path, std::string_view kind) {
  const std::string name = path.filename().string();
  return std::ranges::any_of(std::initializer_list<const char*>{"", ".gz", ".zst"}, [&](const char* packed) {
    return name.ends_with(std::string(kind) + packed) && name.size() > kind.size() + std::string_view(packed).size();
  });
}

std::vector<fs::path> files_of(const fs::path& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.is_regular_file() && has_ending(entry.path(), ".txt")) files.push_back(entry.path());
  }
  std::ranges::sort(files, {}, [](const fs::path& p) { return p.filename().string(); });
  return files;
}

// Returns a hash of everything on which the tokens of `path` depend.
std::string hash_of(const fs::path& path, const DocumentMaker& maker, const PreparationOptions& options) {
  const DocumentOptions& o = maker.options();
  std::vector<std::string> fields = {std::to_string(kVersion), options.tokenizer, options.chat};
  fields.push_back(fmt::format("{} {} {} {} {}", is_json_lines(path), o.layout ? static_cast<int>(*o.layout) : -1,
                               static_cast<int>(o.loss_on), o.end_token.value_or(-1), options.skip_bad_lines));
  for (const fs::path& one : files_of(path)) fields.push_back(hash_of_file(one, options.threads));
  return hash_of_fields(fields);
}

struct Lines {
  std::vector<std::string> texts;
  i64 first = 1;
};

// Tokenizes JSON Lines. The lines are read in batches, and each batch is divided among the threads. The documents are written in the order
// of the lines.
void prepare_rows(const fs::path& path, const DocumentMaker& maker, const PreparationOptions& options, PreparedWriter& writer) {
  // The limit on the bytes of lines that are held in memory at once. A row takes six times its bytes while it is tokenized.
  constexpr size_t kMostBytesInHand = 32 * kMiB;
  LineReader reader(path, kMostRowBytes);
  ThreadPool pool(options.threads);
  const std::string name = path.string();
  for (bool more = true; more;) {
    std::vector<Lines> batches;
    size_t in_hand = 0;
    for (int b = 0; b < 4 * options.threads && more && in_hand < kMostBytesInHand; ++b) {
      Lines& batch = batches.emplace_back();
      batch.first = reader.number() + 1;
      size_t bytes = 0;
      for (std::string line; bytes < kBatchBytes && (more = reader.next(line));) {
        bytes += line.size() + 1;
        batch.texts.push_back(std::move(line));
      }
      in_hand += bytes;
    }
    struct Made {
      std::vector<Document> documents;
      i64 bad = 0;
    };
    std::vector<Made> made(batches.size());
    pool.run(std::ssize(batches), [&](i64 b, int) {
      const Lines& batch = batches[static_cast<size_t>(b)];
      for (size_t i = 0; i < batch.texts.size(); ++i) {
        if (batch.texts[i].find_first_not_of(" \t\r") == std::string::npos) continue;
        try {
          made[static_cast<size_t>(b)].documents.push_back(maker.make(batch.texts[i], name, batch.first + static_cast<i64>(i)));
        } catch (const Error& e) {
          if (!options.skip_bad_lines || e.code() != ErrorCode::data) throw;
          ++made[static_cast<size_t>(b)].bad;
        }
      }
    });
    for (const Made& one : made) {
      writer.counts().bad_lines += one.bad;
      for (const Document& document : one.documents) writer.add(document);
    }
    options.progress(name, reader.bytes_read(), reader.file_bytes());
  }
  writer.counts().lines = reader.number();
}

// Tokenizes plain text; each file becomes one document.
void prepare_text(const fs::path& path, const DocumentMaker& maker, const PreparationOptions& options, PreparedWriter& writer) {
  for (const fs::path& one : files_of(path)) {
    tokenize_text(one, maker.tokenizer(), maker.options().end_token, options, [&](std::span<const i32> ids) { writer.add_text(ids); });
    writer.end_text();
  }
}

}  // namespace

bool is_json_lines(const fs::path& path) { return has_ending(path, ".jsonl"); }
bool is_plain_text(const fs::path& path) { return fs::is_directory(path) || has_ending(path, ".txt"); }

// Cuts the text into pieces, only at positions at which the tokenizer allows a cut, and encodes the pieces.
void tokenize_text(const fs::path& path, const Tokenizer& tokenizer, std::optional<i32> end_token, const PreparationOptions& options,
                   const std::function<void(std::span<const i32>)>& sink) {
  ThreadPool pool(options.threads);
  const Around& around = tokenizer.around();
  for (const fs::path& one : files_of(path)) {
    LineReader reader(one);
    const std::string name = one.string();
    std::string text, line;
    std::vector<std::string> pieces;
    bool begun = false;
    std::vector<i32> last;  // token ids of the piece that was encoded last
    const auto encode = [&] {
      std::vector<std::vector<i32>> ids(pieces.size());
      pool.run(std::ssize(pieces), [&](i64 p, int) { ids[static_cast<size_t>(p)] = tokenizer.encode(pieces[static_cast<size_t>(p)]); });
      if (!begun) sink(missing_before(around, ids.front()));
      begun = true;
      for (const auto& some : ids) sink(some);
      last = std::move(ids.back());
      pieces.clear();
    };
    i64 looked_at = static_cast<i64>(kPieceBytes);
    bool first = true;
    while (reader.next(line)) {
      if (!first) text += '\n';
      first = false;
      text += line;
      if (std::ssize(text) < looked_at) continue;
      const i64 cut = tokenizer.last_cut(text);
      if (cut == 0 && std::ssize(text) > kMostWholeText) {
        throw Error(ErrorCode::usage,
                    fmt::format("[data] {}: expected a text of at most 256 MiB, because this tokenizer gives no position at which a text "
                                "can be cut, got a longer one: give the documents as .jsonl, one per line",
                                name));
      }
      if (cut == 0) {
        looked_at *= 2;
        continue;
      }
      pieces.push_back(text.substr(0, static_cast<size_t>(cut)));
      text.erase(0, static_cast<size_t>(cut));
      looked_at = static_cast<i64>(kPieceBytes);
      if (std::ssize(pieces) >= 2 * options.threads) {
        encode();
        options.progress(name, reader.bytes_read(), reader.file_bytes());
      }
    }
    // The line reader removes the line end of each line, but line ends are part of the text, so they are added again.
    if (!first && reader.ended_with_line_end()) text += '\n';
    pieces.push_back(std::move(text));
    encode();
    if (end_token && (last.empty() || last.back() != *end_token)) {
      sink(std::array{*end_token});
      last.push_back(*end_token);
    }
    sink(missing_behind(around, last));
  }
}

std::unique_ptr<PreparedFile> prepare(const fs::path& path, const DocumentMaker& maker, const PreparationOptions& options) {
  if (!fs::exists(path)) refuse_missing(path);
  if (files_of(path).empty()) refuse_without_texts(path);
  PreparedCache cache(options.cache, path, hash_of(path, maker, options), options.waits);
  if (auto kept = cache.find()) return kept;
  {
    PreparedWriter writer(cache.file());
    is_json_lines(path) ? prepare_rows(path, maker, options, writer) : prepare_text(path, maker, options, writer);
    writer.finish();
  }
  return cache.keep();
}

}  // namespace spillway::data
