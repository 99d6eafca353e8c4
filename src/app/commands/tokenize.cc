#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "app/commands/commands.h"
#include "base/error.h"
#include "base/units.h"
#include "data/documents/line_reader.h"
#include "data/files/atomic_folder.h"
#include "data/loader/loader.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/hugging_face/train_bpe.h"
#include "data/tokens/token_file.h"
#include "trainer/node/grant.h"
#include "trainer/node/working.h"
#include "trainer/run/data_sources.h"
#include "trainer/run/text_notice.h"

namespace spillway::app {
namespace {

constexpr i64 kPieceTokens = 16 * kKiB;

// Calls body(ids) piece by piece, so that a file of any size passes through a buffer of 64 KiB.
template <class Body>
void for_pieces(const data::TokenSource& source, Body body) {
  std::vector<i32> ids;
  for (i64 begin = 0; begin < source.tokens(); begin += kPieceTokens) {
    ids.resize(static_cast<size_t>(std::min(kPieceTokens, source.tokens() - begin)));
    source.read(begin, ids);
    body(std::span<const i32>(ids));
  }
}

int tell_written(const data::TokenFileWriter& writer, const TokenizeConfig& config, Console& console) {
  const i64 bytes = static_cast<i64>(std::filesystem::file_size(config.out));
  if (console.json()) {
    console.result(
        fmt::format("{{\"tokens\": {}, \"bytes_per_token\": {}, \"file_bytes\": {}}}", writer.tokens(), writer.width_bytes(), bytes));
  } else {
    console.result(fmt::format("{}: {} tokens, {} bytes each, {}", config.out, writer.tokens(), writer.width_bytes(), format_bytes(bytes)));
  }
  return 0;
}

void check_out(const TokenizeConfig& config) {
  for (const std::string& path : config.data) {
    std::error_code none;
    if (std::filesystem::equivalent(path, config.out, none)) {
      throw Error(ErrorCode::usage, "[--out] expected a file other than --data, got " + config.out + " for both");
    }
  }
}

void refuse_rows(const std::string& path) {
  throw Error(ErrorCode::usage,
              fmt::format("[--data] expected .txt files (plain, .gz or .zst) or a folder of them, got {}: `train` reads .jsonl "
                          "files directly",
                          path));
}

int encode_bytes(const TokenizeConfig& config, Console& console) {
  for (const std::string& path : config.data) {
    if (data::is_json_lines(path)) refuse_rows(path);
  }
  const auto sources = data::open_token_sources(config.data, data::ByteTokenizer::kVocabulary);
  if (const std::string notice = text_notice(config.data); !notice.empty()) console.warn(notice);
  data::TokenFileWriter writer(config.out, data::ByteTokenizer::kVocabulary);
  for (const auto& source : sources) for_pieces(*source, [&](std::span<const i32> ids) { writer.write(ids); });
  writer.finish();
  return tell_written(writer, config, console);
}

// Tokenizes text files one after the other. Around each text the tokenizer's special tokens are added, and after it an end-of-text token.
int encode(const TokenizeConfig& config, Console& console) {
  check_out(config);
  if (config.tokenizer == "bytes") return encode_bytes(config, console);
  const auto tokenizer = data::read_tokenizer(config.tokenizer);
  for (const std::string& path : config.data) {
    if (!data::is_plain_text(path)) refuse_rows(path);
  }
  if (const std::string notice = text_notice(config.data); !notice.empty()) console.warn(notice);
  data::TokenFileWriter writer(config.out, tokenizer->vocabulary());
  PreparationProgress progress;
  const Working working(console, [&] { return progress.text("making tokens"); });
  data::PreparationOptions options;
  options.threads = core_grant(Host{}, 1, 1).threads;
  options.progress = [&](const std::string& path, i64 done, i64 all) { progress.set(path, done, all); };
  for (const std::string& path : config.data)
    data::tokenize_text(path, *tokenizer, tokenizer->named().end_of_text, options, [&](std::span<const i32> ids) { writer.write(ids); });
  writer.finish();
  return tell_written(writer, config, console);
}

int decode(const TokenizeConfig& config, Console& console) {
  const auto tokenizer = config.tokenizer == "bytes" ? std::make_unique<data::ByteTokenizer>() : data::read_tokenizer(config.tokenizer);
  const auto decoder = tokenizer->stream_decoder();
  for (const auto& source : data::open_token_sources({config.decode}, data::kAnyVocabulary)) {
    for_pieces(*source, [&](std::span<const i32> ids) {
      std::string text;
      for (const i32 id : ids) text += decoder->put(id);
      console.stream(text);
    });
  }
  console.stream(decoder->finish());
  return 0;
}

// Trains a vocabulary. Each line counts as one text, so that no word extends past the end of a line.
int train_vocabulary(const TokenizeConfig& config, Console& console) {
  data::AtomicFolder folder(config.out, data::Existing::refuse);
  size_t at = 0;
  std::unique_ptr<data::LineReader> reader;
  const auto next = [&](std::string& text) {
    for (;;) {
      if (reader && reader->next(text)) {
        text += '\n';
        return true;
      }
      if (at == config.data.size()) return false;
      reader = std::make_unique<data::LineReader>(config.data[at++]);
    }
  };
  data::BpeTraining training;
  training.vocabulary = *config.train_vocab;
  training.memory_bytes = memory_grant(Host{}).bytes;
  const Working working(console, "counting words and merging pairs");
  const data::TrainedTokenizer trained = data::train_byte_level_bpe(next, training);
  folder.write_text("tokenizer.json", trained.tokenizer_json);
  folder.write_text("tokenizer_config.json", trained.tokenizer_config_json);
  folder.commit();
  console.result(console.json()
                     ? fmt::format("{{\"vocabulary\": {}}}", trained.vocabulary)
                     : fmt::format("{}: a tokenizer of {} tokens; use it with --tokenizer {}", config.out, trained.vocabulary, config.out));
  return 0;
}

}  // namespace

int run_tokenize(const TokenizeConfig& config, Console& console) {
  if (config.train_vocab) return train_vocabulary(config, console);
  return config.decode.empty() ? encode(config, console) : decode(config, console);
}

}  // namespace spillway::app
