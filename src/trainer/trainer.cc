#include "trainer/trainer.h"

#include <ostream>

#include "app/flags/given.h"
#include "base/error.h"

namespace spillway {
namespace {

app::TrainConfig named(app::TrainConfig settings, std::string name) {
  settings.model = std::move(name);
  return settings;
}

}  // namespace

Trainer::Trainer(std::string name, std::function<nn::Sequential(DType)> build, const app::TrainConfig& settings)
    : settings_(named(settings, std::move(name))), build_(std::move(build)) {
  if (!build_) throw Error(ErrorCode::usage, "[model] expected a function that builds the model, got none");
  app::check_training(settings_);
}

Trainer::Trainer(const app::TrainConfig& settings) : settings_(settings) { app::check_training(settings_); }

app::TrainingResult Trainer::fit(const app::OwnData& data, std::ostream& results, std::ostream& log) {
  if (!data.training && (build_ || settings_.data.empty()))
    throw Error(ErrorCode::usage, build_ ? "[data] expected OwnData::training for a model that the program builds itself, got none"
                                         : "[data] expected OwnData::training or paths in settings.data, got neither");
  return app::train(settings_, {.model = build_, .data = data}, callbacks, results, log);
}

app::TrainingResult Trainer::fit(const app::OwnData& data) {
  std::ostream nowhere(nullptr);
  return fit(data, nowhere, nowhere);
}

}  // namespace spillway
