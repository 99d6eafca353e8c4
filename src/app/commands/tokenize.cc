#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "app/commands/commands.h"
#include "base/error.h"
#include "base/units.h"
#include "data/loader.h"
#include "data/token_file.h"
#include "data/tokenizer.h"

namespace spillway::app {
namespace {

constexpr i64 kPieceTokens = 16 * kKiB;
constexpr i64 kAnyVocabulary = i64{1} << 31;

// Calls body(ids) piece by piece, so that a file of any size passes through 64 KiB.
template <class Body>
void for_pieces(const data::TokenSource& source, Body body) {
  std::vector<i32> ids;
  for (i64 begin = 0; begin < source.tokens(); begin += kPieceTokens) {
    ids.resize(static_cast<size_t>(std::min(kPieceTokens, source.tokens() - begin)));
    source.read(begin, ids);
    body(std::span<const i32>(ids));
  }
}

int encode(const TokenizeConfig& config, Console& console) {
  for (const std::string& path : config.data) {
    std::error_code none;
    if (std::filesystem::equivalent(path, config.out, none)) {
      throw Error(ErrorCode::usage, "[--out] expected another file than --data, got " + config.out + " for both");
    }
  }
  const auto sources = data::open_token_sources(config.data, data::ByteTokenizer::kVocabulary);
  data::TokenFileWriter writer(config.out, data::ByteTokenizer::kVocabulary);
  for (const auto& source : sources) for_pieces(*source, [&](std::span<const i32> ids) { writer.write(ids); });
  writer.finish();
  const i64 bytes = static_cast<i64>(std::filesystem::file_size(config.out));
  if (console.json()) {
    console.result(
        fmt::format("{{\"tokens\": {}, \"bytes_per_token\": {}, \"file_bytes\": {}}}", writer.tokens(), writer.width_bytes(), bytes));
  } else {
    console.result(fmt::format("{}: {} tokens, {} bytes each, {}", config.out, writer.tokens(), writer.width_bytes(), format_bytes(bytes)));
  }
  return 0;
}

int decode(const TokenizeConfig& config, Console& console) {
  const data::ByteTokenizer tokenizer;
  for (const auto& source : data::open_token_sources({config.decode}, kAnyVocabulary)) {
    for_pieces(*source, [&](std::span<const i32> ids) { console.stream(tokenizer.decode(ids)); });
  }
  return 0;
}

}  // namespace

int run_tokenize(const TokenizeConfig& config, Console& console) {
  return config.decode.empty() ? encode(config, console) : decode(config, console);
}

}  // namespace spillway::app
