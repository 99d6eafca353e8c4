#include "trainer/run/writer.h"

#include <algorithm>

#include "base/error.h"
#include "trainer/checkpoints/checkpoint_tensors.h"
#include "trainer/checkpoints/generation_ends.h"
#include "trainer/run/data_sources.h"

namespace spillway::trainer {
namespace {

// The text of one answer while it is generated.
struct Line {
  StopText stop;
  std::unique_ptr<data::StreamDecoder> decoder;
  Answer answer;
};

bool trained_here(const ModelSource& source) {
  return source.made_here || (source.adapter && std::filesystem::exists(*source.adapter / kStateName));
}

}  // namespace

Writer::Writer(Command command, const WritingConfig& config, const Peers& peers) : config_(config), model_(command, config, peers) {
  if (source().config.reads_images())
    throw Error(ErrorCode::usage, "[generate] expected a language model, got " + source().name + ", which reads images");
  tokenizer_ = tokenizer_of(config, source(), true);
  ends_ = end_tokens();
}

void Writer::open(const Settings& settings, Facts facts, i64 rows, const TextLengths& lengths, Messages& messages) {
  model_.open(settings, std::move(facts),
              {.mode = nn::Mode::generate, .micro_batch_size = rows, .sequence_length = lengths.pass, .cache_positions = lengths.cache},
              messages);
}

// Returns the tokens that end a text. A model trained on bytes has none, whatever its files say. A model trained
// by this program may have learnt the tokenizer's end token in addition to those of its generation_config.json.
std::vector<i64> Writer::end_tokens() const {
  if (!tokenizer_place(config_, source())) return {};
  const auto named = generation_ends(source());
  std::vector<i64> ends = named.value_or(source().config.end_tokens);
  const auto end_of_text = tokenizer_->named().end_of_text;
  if (end_of_text && (!named || trained_here(source()))) ends.push_back(*end_of_text);
  return ends;
}

bool Writer::ends(i32 id) const { return std::ranges::find(ends_, id) != ends_.end(); }

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

}  // namespace spillway::trainer
