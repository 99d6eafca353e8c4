#include "trainer/trainer.h"

#include "base/error.h"

namespace spillway {
namespace {

trainer::TrainConfig named(trainer::TrainConfig settings, std::string name) {
  settings.model = std::move(name);
  return settings;
}

}  // namespace

Trainer::Trainer(std::string name, std::function<nn::Sequential(DType)> build, const trainer::TrainConfig& settings)
    : settings_(named(settings, std::move(name))), build_(std::move(build)) {
  if (!build_) throw Error(ErrorCode::usage, "[model] expected a function that builds the model, got none");
  trainer::check_training(settings_);
}

Trainer::Trainer(const trainer::TrainConfig& settings) : settings_(settings) { trainer::check_training(settings_); }

trainer::TrainingResult Trainer::fit(const trainer::OwnData& data, trainer::Messages& messages) {
  if (!data.training && (build_ || settings_.data.empty()))
    throw Error(ErrorCode::usage, build_ ? "[data] expected OwnData::training for a model that the program builds itself, got none"
                                         : "[data] expected OwnData::training or paths in settings.data, got neither");
  return trainer::train(settings_, {.model = build_, .data = data}, callbacks, messages);
}

trainer::TrainingResult Trainer::fit(const trainer::OwnData& data) {
  trainer::LineMessages none;
  return fit(data, none);
}

}  // namespace spillway
