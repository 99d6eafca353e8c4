// Binds spillway::Trainer for a model whose blocks are written in Python.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "python/module/arrays.h"
#include "python/module/own_data.h"
#include "python/module/own_model.h"
#include "python/module/settings.h"
#include "python/module/torch_block.h"
#include "python/module/training.h"
#include "trainer/deepspeed/deepspeed.h"
#include "trainer/node/launcher.h"
#include "trainer/run/data_sources.h"
#include "trainer/settings/weighted_path.h"
#include "trainer/trainer.h"

namespace spillway::python {
namespace {

// Holds the model, the data and the callbacks of a run whose blocks are written in Python. Its Python objects are used, and it is
// destroyed, only under the GIL.
struct OwnRun {
  std::string name;
  trainer::TrainConfig settings;  // settings of the run, except those of the data
  std::shared_ptr<const OwnModel> model;
  std::optional<OwnSamples> data, validation_data;
  std::optional<trainer::TrainConfig> files;  // the settings with the data files, for a model that reads tokens
  std::vector<std::string> notes;             // what the log says first
};

// Provides text and token files as rows for a model whose blocks are written in Python. It keeps the files open that its samples read.
class TokenFiles {
 public:
  explicit TokenFiles(const trainer::TrainConfig& config, const std::vector<std::string>& paths, data::Split split) : config_(config) {
    // the vocabulary is not limited here, because only the model knows its size
    source_.config.vocabulary = std::numeric_limits<i32>::max();
    source_.tokenizer = trainer::tokenizer_place(config_, source_);
    const trainer::TextWay way = trainer::text_way(config_, config_, source_, paths, trainer::data_cache(config_, config_.out), 1, nullptr);
    sources_.emplace(paths, source_.config, way, split);
  }
  std::unique_ptr<data::Samples> samples() const {
    return sources_->samples(config_.sequence_length.value_or(1),
                             trainer::packing_of(config_, config_.data_order == trainer::DataOrder::sequential), DType::f32);
  }

 private:
  const trainer::TrainConfig config_;
  trainer::ModelSource source_;
  std::optional<trainer::DataSources> sources_;
};

trainer::OwnData data_of(const OwnRun& run, Raised& raised) {
  trainer::OwnData own;
  const auto samples = [&](const std::optional<OwnSamples>& given, std::function<std::unique_ptr<data::Samples>()>& into) {
    if (!given) return;
    into = [source = source_of(*given, raised), &given] { return data::samples_of(source, given->inputs); };
  };
  samples(run.data, own.training);
  samples(run.validation_data, own.validation);
  if (!run.files) return own;
  const auto files = [&](const std::vector<std::string>& paths, data::Split split, std::function<std::unique_ptr<data::Samples>()>& into) {
    if (paths.empty()) return;
    into = [&run, paths, split, kept = std::make_shared<std::vector<std::unique_ptr<TokenFiles>>>(),
            mutex = std::make_shared<std::mutex>()] {
      const std::lock_guard locked(*mutex);
      kept->push_back(std::make_unique<TokenFiles>(*run.files, paths, split));
      return kept->back()->samples();
    };
  };
  files(run.files->data, data::Split::training, own.training);
  files(run.files->validation_data, data::Split::held_out, own.validation);
  return own;
}

Trained by_blocks(std::shared_ptr<OwnRun> run) {
  const bool quiet = run->settings.quiet, json = run->settings.json;
  return {[run = std::move(run)](const trainer::TrainCallbacks& callbacks, Raised& raised, trainer::Messages& messages) {
            if (trainer::detect_launcher(trainer::Host()).rank == 0) {
              for (const std::string& note : run->notes) messages.log(note);
            }
            Skeletons skeletons(run->model->start_run, raised);
            Trainer trainer(
                run->name, [&](DType dtype) { return run->model->build(dtype, run->model, skeletons, raised); }, run->settings);
            trainer.callbacks = callbacks;
            return trainer.fit(data_of(*run, raised), messages);
          },
          quiet, json};
}

using GivenParameters = std::vector<std::pair<std::string, nb::object>>;
using GivenBlock = std::tuple<std::string, nb::object, GivenParameters>;

std::shared_ptr<const OwnModel> model_of(const std::vector<GivenBlock>& blocks, const std::vector<InputShape>& inputs) {
  auto model = std::make_shared<OwnModel>();
  model->inputs = inputs;
  for (const auto& [name, forward, parameters] : blocks) {
    OwnBlock& block = model->blocks.emplace_back(OwnBlock{name, forward, {}});
    for (const auto& [parameter_name, parameter] : parameters) block.parameters.push_back(named_parameter(parameter_name, parameter));
  }
  return model;
}

// Throws an Error unless the samples have the same inputs as the training samples.
void check_same_inputs(const OwnSamples& samples, const std::vector<InputShape>& inputs) {
  const auto text_of = [](const std::vector<InputShape>& all) {
    std::string text;
    for (const InputShape& input : all)
      text += (text.empty() ? "" : ", ") + input.name + " " + std::string(to_string(input.dtype)) + " " + to_string(input.shape);
    return text;
  };
  if (text_of(samples.inputs) != text_of(inputs))
    throw WrongValue(samples.argument + ": expected samples like those of data (" + text_of(inputs) + "), got " + text_of(samples.inputs));
}

using TorchParameters = std::vector<std::pair<std::string, nb::tuple>>;
using TorchBlocks = std::vector<std::tuple<std::string, TorchParameters>>;

std::shared_ptr<const OwnModel> torch_model_of(const TorchBlocks& blocks, const nb::object& start_run,
                                               const std::vector<InputShape>& inputs) {
  auto model = std::make_shared<OwnModel>();
  model->inputs = inputs;
  model->start_run = start_run;
  std::map<std::string, NamedParameter> known;
  for (const auto& [name, parameters] : blocks) {
    OwnBlock& block = model->blocks.emplace_back(OwnBlock{name, {}, {}});
    for (const auto& [parameter_name, spec] : parameters)
      block.parameters.push_back(known.try_emplace(parameter_name, torch_parameter(parameter_name, spec)).first->second);
  }
  return model;
}

Trained torch_training(const nb::dict& arguments, const Word& name, const TorchBlocks& blocks, const nb::object& start_run,
                       const std::string& weight, const nb::object& data, const nb::object& validation_data,
                       std::vector<std::string> notes) {
  auto run = std::make_shared<OwnRun>();
  run->name = name;
  run->settings = partial_settings(arguments);
  const DType floats = run->settings.precision == trainer::Precision::fp64 ? DType::f64 : DType::f32;
  using Weight = OwnSamples::Weight;
  const auto samples = [&](const nb::object& given, const char* argument) {
    OwnSamples read = own_samples(given, floats, argument);
    read.of_torch = true;
    read.is_stream = nb::cast<bool>(given.attr("streamed"));
    read.weight = weight == "labels" ? Weight::labels : weight == "next labels" ? Weight::next_labels : Weight::one;
    return read;
  };
  run->data = samples(data, "data");
  if (!validation_data.is_none()) {
    run->validation_data = samples(validation_data, "validation_data");
    check_same_inputs(*run->validation_data, run->data->inputs);
  }
  run->notes = std::move(notes);
  run->model = torch_model_of(blocks, start_run, run->data->inputs);
  trainer::TrainConfig checked = run->settings;
  checked.model = run->name;
  trainer::check_training(checked);
  return by_blocks(std::move(run));
}

Trained own_training(const nb::dict& arguments, const Word& name, const std::vector<GivenBlock>& blocks, const nb::object& data,
                     const nb::object& validation_data) {
  auto run = std::make_shared<OwnRun>();
  run->name = name;
  run->settings = partial_settings(arguments);
  const DType floats = run->settings.precision == trainer::Precision::fp64 ? DType::f64 : DType::f32;
  if (data.is_none()) {
    if (!trainer::weighted_paths(run->settings.data).weights.empty())
      throw WrongValue("data: expected paths without weights for a model of one's own, got a mixture");
    run->files = run->settings;
    run->settings.data.clear(), run->settings.validation_data.clear();
    run->settings.tokenizer.reset(), run->settings.chat_template.reset();
  } else {
    run->data = own_samples(data, floats, "data");
  }
  const std::vector<InputShape> inputs = run->data ? run->data->inputs : std::vector<InputShape>();
  if (!validation_data.is_none()) {
    run->validation_data = own_samples(validation_data, floats, "validation_data");
    check_same_inputs(*run->validation_data, inputs);
  }
  run->model = model_of(blocks, inputs);
  trainer::TrainConfig checked = run->settings;
  checked.model = run->name;
  trainer::check_training(checked);
  return by_blocks(std::move(run));
}

}  // namespace

void bind_own_training(nb::module_& module) {
  module.def("_own_training", own_training, nb::arg("arguments"), nb::arg("name"), nb::arg("blocks"), nb::arg("data").none(),
             nb::arg("validation_data").none(), "Makes the Training of a model of one's own.");
  module.def("_torch_training", torch_training, nb::arg("arguments"), nb::arg("name"), nb::arg("blocks"), nb::arg("start_run"),
             nb::arg("weight"), nb::arg("data"), nb::arg("validation_data").none(), nb::arg("notes"),
             "Makes the Training of a model whose blocks PyTorch computes (spillway/torch).");
}

}  // namespace spillway::python
