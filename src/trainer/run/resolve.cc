#include "trainer/run/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "base/error.h"
#include "trainer/checkpoints/adapters.h"
#include "trainer/node/grant.h"
#include "trainer/ranks/attention_choice.h"
#include "trainer/settings/option.h"

namespace spillway::trainer {
namespace {

void apply_dropout(TrainConfig& config, ModelSource& source) {
  models::ModelConfig& m = source.config;
  if (config.dropout) m.embedding_dropout = m.residual_dropout = m.attention_dropout = *config.dropout;
  const bool equal = m.embedding_dropout == m.residual_dropout && m.residual_dropout == m.attention_dropout;
  if (equal) config.dropout = m.residual_dropout;
}

void apply_attention(const TrainConfig& config, ModelSource& source) {
  if (config.attention != Attention::cudnn) return;
  models::ModelConfig& m = source.config;
  if (m.reads_images())
    throw Error(ErrorCode::usage,
                fmt::format("[--attention] expected a model with attention for cudnn, got {}, which reads images: leave --attention out",
                            source.name));
  check_attention(config, attention_shape(m, config.micro_batch_rows(), *config.sequence_length, weight_dtype(*config.precision)),
                  m.attention_dropout);
  m.attention = kernels::AttentionLibrary::cudnn;
}

[[noreturn]] void refuse_flag(const std::string& name, const std::string& got, const std::string& why) {
  throw Error(ErrorCode::usage, fmt::format("[--{}] expected this flag to be left out, because {}, got {}", name, why, got));
}

// Refuses each given flag that has the attribute. `why` says in the message why it is refused.
void refuse_given(const TrainConfig& config, bool Option::*attribute, const std::string& why) {
  const Settings given = config;
  for (const Option* option : options_of(Command::train)) {
    if (option->*attribute && is_given(*option, given)) refuse_flag(option->name, option->field.get(given)->front(), why);
  }
}

void check_images(const TrainConfig& config, const ModelSource& source) {
  const std::string why = source.name + " reads images";
  refuse_given(config, &Option::refused_for_images, why);
  const bool drops = source.config.family == models::Family::alexnet || source.config.family == models::Family::vgg11;
  if (config.sequence_length.value_or(1) != 1) refuse_flag("sequence-length", std::to_string(*config.sequence_length), why);
  if (config.dropout.value_or(0) != 0 && !drops) refuse_flag("dropout", fmt::format("{}", *config.dropout), why);
}

void check_text(const TrainConfig& config, const ModelSource& source) {
  refuse_given(config, &Option::refused_for_text, source.name + " reads text");
}

}  // namespace

i64 default_micro_batch_size(const models::ModelConfig& model) { return model.reads_images() ? 64 : 1; }

int loader_workers(const TrainConfig& config, const RankPlace& place) {
  if (config.workers) return static_cast<int>(*config.workers);
  return config.threads ? static_cast<int>(*config.threads) : core_grant(Host{}, place.core_sharers, place.local_ranks).threads;
}

kernels::AttentionShape attention_shape(const models::ModelConfig& model, i64 micro_batch_size, i64 sequence_length, DType dtype) {
  return {micro_batch_size, sequence_length, model.heads, model.kv_heads, model.head_dim, dtype, model.family == models::Family::gpt2};
}

namespace {

// Resolves the settings for a model that a program builds itself. Refuses the settings that apply only to models that Spillway builds.
void resolve_own_model(TrainConfig& config, const ModelSource& source) {
  const auto refuse_if = [&](bool given, const std::string& key) {
    if (given)
      throw Error(
          ErrorCode::usage,
          fmt::format(
              "[{}] expected this setting to be left out, because it does not apply to `{}`, a model that the program builds itself", key,
              source.name));
  };
  const Settings given = config;
  for (const Option* option : options_of(Command::train))
    refuse_if(option->refused_for_own_models && is_given(*option, given), option->key());
  const nn::Sequential model = source.build(weight_dtype(*config.precision));
  if (model.blocks.empty())
    throw Error(ErrorCode::usage, fmt::format("[model] expected at least one block in the model `{}`, got none", source.name));
  if (model.parameters.empty())
    throw Error(ErrorCode::usage, fmt::format("[model] expected at least one parameter in the model `{}`, got none", source.name));
  refuse_if(!model.reads_tokens() && config.sequence_length.value_or(1) != 1, "sequence_length");
  if (model.reads_tokens() && !config.sequence_length)
    throw Error(ErrorCode::usage,
                fmt::format("[sequence_length] expected the number of tokens in a row of the model `{}`, got nothing", source.name));
  if (!config.learning_rate) config.learning_rate = 3e-4;
  if (!config.sequence_length) config.sequence_length = 1;
  if (!config.micro_batch_size) config.micro_batch_size = 1;
}

}  // namespace

void resolve_model(TrainConfig& config, ModelSource& source) {
  if (source.own) return resolve_own_model(config, source);
  source.config.reads_images() ? check_images(config, source) : check_text(config, source);
  if (config.image_size && source.folder)
    throw Error(ErrorCode::usage,
                fmt::format("[--image-size] expected this flag to be left out, because the config.json of {} sets the size, got {}",
                            source.name, *config.image_size));
  apply_dropout(config, source);
  resolve_adapters(config, source);
  if (source.config.experts && source.config.experts->evened_out && config.pipeline_stages > 1)
    throw Error(
        ErrorCode::usage,
        "[--pipeline-stages] expected 1 for a model whose config.json sets output_router_logits: the router loss combines the experts of "
        "all layers, and a stage has only its own; set output_router_logits to false, or give --pipeline-stages 1");
  const bool loaded = source.has_weights && !config.from_scratch;
  if (!config.learning_rate) config.learning_rate = source.config.lora ? 2e-4 : loaded ? 2e-5 : 3e-4;
  if (config.lora && !config.lora_alpha) config.lora_alpha = source.config.lora->alpha;
  if (!config.sequence_length) config.sequence_length = source.config.positions;
  if (!config.micro_batch_size) config.micro_batch_size = default_micro_batch_size(source.config);
  if (*config.sequence_length > source.config.positions) {
    throw Error(ErrorCode::usage,
                fmt::format("[train] expected --sequence-length of at most {} (the number of positions of the model), got {}",
                            source.config.positions, *config.sequence_length));
  }
  apply_attention(config, source);
}

void resolve_steps(TrainConfig& config, const data::Loader& loader) {
  if (!config.steps) config.steps = loader.steps_of_epochs(config.epochs.value_or(1));
  if (!config.warmup_steps) config.warmup_steps = default_warmup_steps(config.lr_schedule, *config.steps);
}

namespace {

std::string many(i64 count, const char* what) { return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s"); }

// Says what happens to the rows at the end of an epoch that do not fill a step.
std::string last_rows_text(const TrainConfig& config, const data::Loader& loader, bool images) {
  const i64 left_over = loader.windows() % loader.windows_per_step();
  if (left_over == 0) return "";
  if (config.drop_last || images)
    return fmt::format("; the remaining {} {} dropped{}", left_over, left_over == 1 ? "is" : "are",
                       config.drop_last ? " (--drop-last)" : ", as always for images in training");
  if (loader.windows() < loader.windows_per_step()) return "; a step could take more than these rows, and none is repeated";
  return fmt::format("; the last step has only the remaining {}", left_over);
}

}  // namespace

std::string epoch_note(const TrainConfig& config, const data::Loader& loader, bool images) {
  const i64 rows = loader.windows_per_step();
  if (loader.is_mixture()) {
    const double epochs = static_cast<double>(*config.steps) * static_cast<double>(rows) / static_cast<double>(loader.windows());
    return fmt::format("an epoch of the mixture is {}, as many as all its sources have together; {} are {:.4g} epochs",
                       many(loader.windows(), images ? "image" : "row"), many(*config.steps, "step"), epochs);
  }
  const i64 steps = loader.steps_per_epoch();
  return fmt::format("an epoch is {}{}; {} are {:.4g} epochs", many(steps, "step"), last_rows_text(config, loader, images),
                     many(*config.steps, "step"), static_cast<double>(*config.steps) / static_cast<double>(steps));
}

std::string older_epochs_note(const Progress& progress, const data::Loader& loader) {
  const bool same = loader.is_mixture() || loader.windows() % loader.windows_per_step() == 0;
  if (progress.step == 0 || progress.rules >= kNumberRules || same) return "";
  return fmt::format(
      "the run was started by an older program, whose steps could cross the end of an epoch: from row {} on a step ends with the epoch, so "
      "later steps get other rows than the older program would give them; no row is skipped or repeated",
      progress.cursor);
}

namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

bool has_any(const std::vector<std::string>& all, const std::vector<std::string>& of) {
  return std::ranges::any_of(of, [&](const std::string& one) { return std::ranges::find(all, one) != all.end(); });
}

}  // namespace

std::string settle_mixture(Progress& progress, const std::vector<double>& weights_before, const std::string& data_now,
                           data::Loader& loader) {
  const bool began = progress.step > 0;
  const bool was_mixture = progress.mixture || (began && !weights_before.empty());
  if (!loader.is_mixture()) {
    progress.mixture.reset();
    if (!was_mixture) return "";
    return fmt::format("the data was a weighted mixture until now; from row {} on each epoch takes every row of all sources once",
                       progress.cursor);
  }
  data::MixtureStart now = *loader.mixture_start();
  const std::vector<std::string> after = words_of(data_now), before = progress.data.empty() ? after : words_of(progress.data);
  const data::MixtureStart then = progress.mixture.value_or(data::mixture_from_the_beginning(weights_before));
  std::string note;
  if (was_mixture && then.weights.size() == before.size()) {
    const bool same = then.weights == now.weights && (before == after || !has_any(before, after));
    if (!same) {
      note = fmt::format(
          "the mixture changes at row {}; each source of the old mixture continues where it stopped, a new source starts at its first row",
          progress.cursor);
    }
    now = same ? then : data::with_other_weights(then, before, progress.cursor, after, now.weights);
  } else if (began) {
    now.at = progress.cursor;
    note = fmt::format("the data is a weighted mixture from row {} on, in which each source starts at its first row", progress.cursor);
  }
  progress.mixture = now;
  loader.set_mixture_start(std::move(now));
  return note;
}

data::LoaderOptions loader_options(const TrainConfig& config, int rank) {
  data::LoaderOptions options;
  options.sequence_length = *config.sequence_length;
  options.micro_batch_size = config.micro_batch_rows();
  options.micro_batches = config.micro_batches(config.data_ranks());
  options.rank = rank;
  options.ranks = static_cast<int>(config.data_ranks());
  options.shuffled = config.data_order == DataOrder::shuffled;
  options.drop_last = config.drop_last;
  options.seed = config.seed;
  options.validation_fraction = config.validation_fraction;
  return options;
}

}  // namespace spillway::trainer
