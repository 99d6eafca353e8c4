#include "app/run/writer.h"

#include <algorithm>

#include "app/run/data_sources.h"
#include "base/error.h"

namespace spillway::app {
namespace {

// One row's text on its way out.
struct Line {
  StopText stop;
  std::unique_ptr<data::StreamDecoder> decoder;
  Answer answer;
};

}  // namespace

Writer::Writer(Command command, const WritingConfig& config, const Peers& peers) : config_(config), model_(command, config, peers) {
  if (source().config.reads_images())
    throw Error(ErrorCode::usage, "[generate] expected a language model, got " + source().name + ", which reads images");
  tokenizer_ = tokenizer_of(config, source(), true);
}

void Writer::open(const Settings& settings, Facts facts, i64 rows, const TextLengths& lengths, Console& console) {
  model_.open(settings, std::move(facts),
              {.mode = nn::Mode::generate, .micro_batch_size = rows, .sequence_length = lengths.pass, .cache_positions = lengths.cache},
              console);
}

// A model that was trained on bytes ends nowhere, whatever its config.json says.
bool Writer::ends(i32 id) const {
  if (!tokenizer_place(config_, source())) return false;
  const std::vector<i64>& end_tokens = source().config.end_tokens;
  return std::ranges::find(end_tokens, id) != end_tokens.end() || tokenizer_->named().end_of_text == id;
}

std::vector<Answer> Writer::write(const std::vector<std::vector<i32>>& prompts, i64 first,
                                  const std::function<void(size_t row, const std::string& piece)>& put) {
  std::vector<TextRow> rows;
  std::vector<Line> lines;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const u64 seed = config_.seed + static_cast<u64>(first) + i;
    rows.push_back({prompts[i], {config_.temperature, config_.top_k, config_.top_p, config_.min_p, config_.repetition_penalty, seed}});
    lines.push_back({StopText(config_.stop), tokenizer_->stream_decoder(true), {}});
  }
  const auto say = [&](size_t row, const std::string& piece) {
    lines[row].answer.text += piece;
    if (!piece.empty()) put(row, piece);
  };
  generate_tokens(model_.rank(), std::move(rows), config_.max_tokens, source().config.positions, [&](size_t row, i32 id) {
    Line& line = lines[row];
    if (ends(id)) return false;
    say(row, line.stop.put(line.decoder->put(id)));
    line.answer.tokens.push_back(id);
    return !line.stop.stopped();
  });
  std::vector<Answer> answers;
  for (size_t row = 0; row < lines.size(); ++row) {
    say(row, lines[row].stop.put(lines[row].decoder->finish()));
    say(row, lines[row].stop.finish());
    answers.push_back(std::move(lines[row].answer));
  }
  return answers;
}

}  // namespace spillway::app
