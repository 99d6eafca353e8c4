// Compares image models with reference runs of PyTorch: logits in evaluation mode, loss and gradients of the first
// step, running statistics, and some steps of SGD with momentum. tests/data/image-models.md describes the data.
#include <gtest/gtest.h>

#include <functional>

#include "models/model.h"
#include "models/presets.h"
#include "models/resnet.h"
#include "models/weights.h"
#include "tests/models/support_reference.h"
#include "tests/support/fixtures.h"
#include "tests/support/numbers.h"

namespace spillway::image_test {
namespace {

using test::as_doubles;
using test::worst_excess;

struct Case {
  const char* name;
  DType dtype;
  std::function<nn::Sequential(DType)> build;
  i64 steps, batches;
  double rate, decay;
};

// Holds a model with a folder's weights, and applies PyTorch's SGD (momentum 0.9) to them.
class Eager {
 public:
  explicit Eager(const Case& c) : case_(c), model(c.build(c.dtype)), weights(model), images_(c.name, DType::f32) {
    models::fill(model, models::FolderWeights(model, test::data(c.name)));
    for (const auto& p : model.parameters) velocity_.push_back(zeros(p->shape, p->dtype));
  }

  MicroBatch batch(i64 step) const {
    const i64 n = step % case_.batches;
    const std::vector<double> all = images_.values("images");
    const size_t elems = all.size() / static_cast<size_t>(case_.batches);
    const std::vector<double> some(all.begin() + n * static_cast<i64>(elems), all.begin() + (n + 1) * static_cast<i64>(elems));
    MicroBatch result;
    result.images_NCHW = test::as(case_.dtype, tensor_of<double>(some, {8, 3, 32, 32}));
    result.targets_BT = images_.ids("labels", n, 1).reshape({8});
    return result;
  }

  double backward(const MicroBatch& batch) {
    autograd::Tape tape(&weights);
    nn::Context context;
    context.batch = &batch;
    context.tape = &tape;
    context.loss_factor = 1.0 / 8;
    const nn::Variable loss = nn::run(model, context);
    loss.backward();
    return loss.value.item() / 8;
  }

  std::vector<double> logits() const {
    const MicroBatch first = batch(0);
    nn::Context context;
    context.mode = nn::Mode::generate;
    context.batch = &first;
    return as_doubles(nn::run(model, context).value);
  }

  void step() {
    for (const auto& p : model.parameters) {
      const Tensor gradient = weights.gradient(p->id);
      p->dtype == DType::f64 ? step_of<double>(*p, gradient) : step_of<float>(*p, gradient);
    }
    weights.forget();
  }

 private:
  template <class T>
  void step_of(const nn::Parameter& p, const Tensor& gradient) {
    T *w = p.value().data<T>(), *v = velocity_[p.id].data<T>();
    for (i64 i = 0; p.statistic && i < p.elems(); ++i) w[i] += static_cast<T>(nn::kStatisticMomentum) * (gradient.data<T>()[i] - w[i]);
    for (i64 i = 0; !p.statistic && i < p.elems(); ++i) {
      v[i] = static_cast<T>(0.9) * v[i] + (gradient.data<T>()[i] + static_cast<T>(case_.decay) * w[i]);
      w[i] -= static_cast<T>(case_.rate) * v[i];
    }
  }

  Case case_;

 public:
  nn::Sequential model;
  nn::EagerParameters weights;

 private:
  test::Reference images_;
  std::vector<Tensor> velocity_;
};

class ImageModel : public ::testing::TestWithParam<Case> {
 protected:
  // Compares every parameter for which the reference has a tensor named `prefix` + name. Returns how many parameters there were.
  int compare(const std::string& prefix, const std::function<Tensor(const nn::Parameter&)>& got, double absolute) const {
    int compared = 0;
    for (const auto& p : eager.model.parameters) {
      if (!reference.has(prefix + p->name)) continue;
      EXPECT_LE(worst_excess(as_doubles(got(*p)), reference.values(prefix + p->name), absolute, 1e-5), 0) << prefix << p->name;
      ++compared;
    }
    return compared;
  }
  static Tensor value(const nn::Parameter& p) { return p.value(); }

  const bool f64 = GetParam().dtype == DType::f64;
  test::Reference reference{GetParam().name, GetParam().dtype};
  Eager eager{GetParam()};
};

TEST_P(ImageModel, LearnsAsTheReference) {
  const double close = f64 ? 1e-9 : 1e-5;
  EXPECT_LE(worst_excess(eager.logits(), reference.values("eval_before/logits"), close, 0), 0);
  const std::vector<double> losses = reference.values("train/loss");
  ASSERT_EQ(static_cast<i64>(losses.size()), GetParam().steps);
  for (i64 step = 0; step < GetParam().steps; ++step) {
    EXPECT_NEAR(eager.backward(eager.batch(step)), losses[static_cast<size_t>(step)], f64 ? 1e-9 : 2e-5) << "step " << step;
    if (step == 0) {
      const int gradients = compare(
          "grad/", [&](const nn::Parameter& p) { return eager.weights.gradient(p.id); }, f64 ? 1e-10 : 2e-6);
      const bool kept = !f64 || reference.has("grad/conv1.weight");
      EXPECT_EQ(gradients > 0, kept);
    }
    eager.step();
    if (step == 0) compare("after_1/", value, close);
  }
  compare("train/final/", value, f64 ? 1e-8 : 5e-5);
  EXPECT_LE(worst_excess(eager.logits(), reference.values("eval_after/logits"), f64 ? 1e-8 : 2e-4, 0), 0);
}

nn::Sequential cifar_net(DType dtype) { return models::build(models::preset("cifar-net"), dtype); }
nn::Sequential tiny(DType dtype) { return models::build_resnet({.widths = {8, 16, 32}, .blocks = {1, 1, 1}}, {3, 32, 32}, 10, dtype); }

INSTANTIATE_TEST_SUITE_P(Models, ImageModel,
                         ::testing::Values(Case{"cifarnet", DType::f32, cifar_net, 5, 1, 0.001, 0},
                                           Case{"cifarnet", DType::f64, cifar_net, 5, 1, 0.001, 0},
                                           Case{"resnet-tiny", DType::f32, tiny, 3, 3, 0.1, 5e-4},
                                           Case{"resnet-tiny", DType::f64, tiny, 3, 3, 0.1, 5e-4}),
                         [](const auto& entry) {
                           std::string name = std::string(entry.param.name) + "_" + std::string(to_string(entry.param.dtype));
                           std::erase(name, '-');
                           return name;
                         });

TEST(ResNet, InBf16GivesWideLogitsNearThoseOfF32) {
  const Case narrow{"resnet-tiny", DType::bf16, tiny, 3, 3, 0, 0}, wide{"resnet-tiny", DType::f32, tiny, 3, 3, 0, 0};
  // The tolerance allows eight rounding errors of 2^-8 in numbers of about 1.
  EXPECT_LE(worst_excess(Eager(narrow).logits(), Eager(wide).logits(), 8 * 0x1p-8, 0.05), 0);
}

}  // namespace
}  // namespace spillway::image_test
