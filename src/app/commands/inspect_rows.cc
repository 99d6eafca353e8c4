#include "app/commands/inspect_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/printable.h"
#include "data/documents/line_reader.h"
#include "data/tokens/token_source.h"
#include "tensor/batch.h"
#include "trainer/node/grant.h"
#include "trainer/node/working.h"
#include "trainer/run/data_sources.h"
#include "trainer/settings/text.h"

namespace spillway::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr i64 kShownRows = 3, kLengthWithoutModel = 1024;
constexpr size_t kMostShownBytes = 3000;  // a longer row is cut when it is shown

ModelSource model_of(const InspectConfig& config) {
  if (config.model.empty()) {
    ModelSource none{};
    none.config.positions = std::numeric_limits<i32>::max();
    none.config.vocabulary = data::kAnyVocabulary;
    return none;
  }
  ModelSource source = find_trained_model(config.model, "last");
  if (source.config.reads_images())
    throw Error(ErrorCode::usage, fmt::format("[--model] expected a model that reads text, got {}, which reads images", config.model));
  return source;
}

i64 sequence_length(const InspectConfig& config, const ModelSource& source) {
  const i64 T = config.sequence_length.value_or(config.model.empty() ? kLengthWithoutModel : source.config.positions);
  if (T <= source.config.positions) return T;
  throw Error(ErrorCode::usage, fmt::format("[inspect] expected --sequence-length of at most {} (the model's positions), got {}",
                                            source.config.positions, T));
}

double rounded(double share) { return std::round(share * 1e4) / 1e4; }

// Splits a document's tokens into pieces of text. Each piece as a whole contributes to the loss or does not.
Json pieces_of(const data::Tokenizer& tokenizer, std::span<const i32> tokens, std::span<const i32> targets) {
  Json pieces = Json::array();
  const auto decoder = tokenizer.stream_decoder();
  const auto add = [&](const std::string& text, bool counted) {
    if (text.empty()) return;
    if (pieces.empty() || pieces.back()["counted"] != counted) pieces.push_back({{"text", ""}, {"counted", counted}});
    pieces.back()["text"].get_ref<std::string&>() += text;
  };
  bool counted = false;
  for (size_t t = 0; t < tokens.size(); ++t) {
    counted = t > 0 && targets[t - 1] >= 0;
    add(decoder->put(tokens[t]), counted);
  }
  add(decoder->finish(), counted);
  return pieces;
}

// Describes one row of packed text. Documents begin at position 0, and so does the padding at the end of the row.
Json row_of(const data::TextRows& rows, i64 row, i64 T, const data::Tokenizer& tokenizer) {
  std::vector<i32> tokens(static_cast<size_t>(T)), targets(tokens.size()), positions(tokens.size());
  const i64 counted = rows.read(row, tokens, targets, positions).counted;
  Json documents = Json::array();
  i64 padding = 0;
  for (size_t begin = 0, end = 0; begin < tokens.size(); begin = end) {
    end = static_cast<size_t>(std::find(positions.begin() + static_cast<i64>(begin) + 1, positions.end(), 0) - positions.begin());
    const auto own = std::span<const i32>(targets).subspan(begin, end - begin);
    if (own.front() == kPaddingTarget) {
      padding = static_cast<i64>(end - begin);
    } else {
      documents.push_back(pieces_of(tokenizer, std::span<const i32>(tokens).subspan(begin, end - begin), own));
    }
  }
  return {{"tokens", T - padding}, {"counted", counted}, {"padding", padding}, {"documents", std::move(documents)}};
}

Json names_of(const data::Tokenizer& tokenizer, const std::vector<i32>& ids) {
  Json names = Json::array();
  for (const i32 id : ids) names.push_back(tokenizer.token(id));
  return names;
}

Json lengths_of(const data::PreparedFile& file) {
  std::vector<i64> lengths;
  for (i64 d = 0; d < file.counts().documents; ++d) lengths.push_back(file.document_tokens(d));
  if (lengths.empty()) return Json::object();
  std::ranges::sort(lengths);
  const auto at = [&](double share) { return lengths[static_cast<size_t>(std::ceil(share * static_cast<double>(lengths.size()))) - 1]; };
  return {{"min", lengths.front()}, {"median", at(0.5)}, {"90_percent", at(0.9)}, {"max", lengths.back()}};
}

// Cuts the text between two UTF-8 characters, so that at most `bytes` bytes remain.
std::string shortened(const std::string& text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

std::string marked(const std::string& text, const Console& console) {
  const std::string painted = console.painted(text, Colour::green);
  return painted == text ? "⟦" + text + "⟧" : painted;
}

std::string row_text(const Json& row, const Console& console) {
  std::string text;
  size_t left = kMostShownBytes;
  for (const Json& document : row["documents"]) {
    if (left == 0) break;
    if (!text.empty()) text += "\n----\n";
    for (const Json& piece : document) {
      const std::string whole = for_terminal(piece["text"].get<std::string>()), some = shortened(whole, left);
      if (!some.empty()) text += piece["counted"].get<bool>() ? marked(some, console) : some;
      left = some.size() < whole.size() ? 0 : left - some.size();
      if (left == 0) break;
    }
  }
  return left == 0 ? text + " …" : text;
}

}  // namespace

Json describe_rows(const InspectConfig& config, Console& console) {
  const ModelSource source = model_of(config);
  const i64 T = sequence_length(config, source);
  PreparationProgress progress;
  const TextWay way = text_way(config, config, source, {config.path}, data_cache(config, {}), core_grant(Host{}, 1, 1).threads, &progress);
  std::unique_ptr<data::PreparedFile> file;
  {
    const Working working(console, [&] { return progress.text("making tokens"); });
    file = prepared_tokens(config.path, way, source.config.vocabulary);
  }
  data::RowCounts counts;
  const auto rows = data::document_rows(*file, T, packing_of(config, false), counts);
  const auto place = tokenizer_place(config, source);
  Json about = {{"kind", "rows"},
                {"path", config.path},
                {"tokenizer", place ? place->string() : "bytes"},
                {"texts_begin_with", names_of(way.maker->tokenizer(), way.maker->around_texts().before)},
                {"texts_end_with", names_of(way.maker->tokenizer(), way.maker->around_texts().behind)},
                {"documents", counts.documents},
                {"tokens", counts.tokens},
                {"counted_tokens", counts.targets},
                {"counted_share", rounded(static_cast<double>(counts.targets) / static_cast<double>(std::max<i64>(1, counts.tokens)))},
                {"document_tokens", lengths_of(*file)},
                {"sequence_length", T},
                {"rows_per_epoch", counts.rows},
                {"padding_share", rounded(counts.padding())},
                {"cut_documents", counts.cut_documents},
                {"cut_tokens", counts.cut_tokens},
                {"documents_without_counted", counts.without_targets + file->counts().without_targets},
                {"bad_lines", file->counts().bad_lines},
                {"unread_keys", file->counts().unread}};
  about["first_rows"] = Json::array();
  for (i64 row = 0; row < std::min(kShownRows, counts.rows); ++row)
    about["first_rows"].push_back(row_of(*rows, row, T, way.maker->tokenizer()));
  return about;
}

Json describe_text(const InspectConfig& config, Console& console) {
  const ModelSource source = model_of(config);
  const i64 T = sequence_length(config, source);
  data::LineReader reader(config.path);
  i64 bytes = 0;
  for (std::string line; reader.next(line);) bytes += std::ssize(line) + reader.ended_with_line_end();
  const auto place = tokenizer_place(config, source);
  Json about = {{"kind", "text"}, {"path", config.path}, {"lines", reader.number()}, {"bytes", bytes}};
  about["tokenizer"] = place ? place->string() : "bytes";
  PreparationProgress progress;
  const TextWay way = text_way(config, config, source, {config.path}, data_cache(config, {}), core_grant(Host{}, 1, 1).cores, &progress);
  std::unique_ptr<data::TokenSource> tokens;
  if (way.prepared.empty()) {
    tokens = std::move(data::open_token_sources({config.path}, source.config.vocabulary).front());
  } else {
    const Working working(console, [&] { return progress.text("making tokens"); });
    tokens = prepared_tokens(config.path, way, source.config.vocabulary);
  }
  about["tokens"] = tokens->tokens();
  about["sequence_length"] = T;
  about["rows_per_epoch"] = data::windows_of(*tokens, T)->rows();
  const std::string model = !config.model.empty() ? shell_word(config.model) : place ? "gpt2-124m" : "gpt2-tiny";
  about["to_train"] = "spillway train --model " + model + " --data " + shell_word(config.path);
  if (config.model.empty() && place) about["to_train"].get_ref<std::string&>() += " --tokenizer " + shell_word(place->string());
  return about;
}

std::string first_rows_text(const Json& about, const Console& console) {
  std::string text;
  i64 number = 0;
  for (const Json& row : about["first_rows"]) {
    text += fmt::format("row {} of {}: {} documents, {} tokens, {} of them {}, {} of padding\n{}\n\n", ++number,
                        about["rows_per_epoch"].get<i64>(), row["documents"].size(), row["tokens"].get<i64>(), row["counted"].get<i64>(),
                        marked("counted", console), row["padding"].get<i64>(), row_text(row, console));
  }
  return text;
}

}  // namespace spillway::app
