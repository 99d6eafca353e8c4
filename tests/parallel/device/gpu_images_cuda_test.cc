// Tests that image models learn on a GPU as they do on the CPU. Losses, the first gradients and the weights after some steps are
// compared, in eager execution, block by block. In a build with SPILLWAY_CUDA=EMULATED the GPU's code runs on the CPU.
#include <functional>

#include "device/transfer.h"
#include "models/model.h"
#include "models/presets.h"
#include "models/resnet.h"
#include "nn/eager.h"
#include "tests/support/gpu.h"
#include "tests/support/numbers.h"

namespace spillway::gpu_images_cuda_test {
namespace {

using Build = std::function<nn::Sequential(DType)>;

class GpuImages : public test::GpuTest {
 protected:
  struct Learnt {
    std::vector<double> losses;
    // tensors for each parameter, in host memory: gradients of the first step, weights after the last step
    std::vector<Tensor> gradients, weights;
  };

  // Takes some steps of SGD on one batch, on the device of the current stream.
  static Learnt learn(const Build& build, const Tensor& images, const Tensor& classes) {
    const nn::Sequential model = build(images.dtype());
    nn::EagerParameters weights(model);
    for (const auto& p : model.parameters) {
      std::vector<double> values(static_cast<size_t>(p->elems()));
      nn::initial_values(*p, 1, 0, values);
      set(*p, [&](const Tensor&, i64 i) { return values[static_cast<size_t>(i)]; });
    }
    MicroBatch batch;
    batch.images_NCHW = to_current_device(images);
    batch.targets_BT = to_current_device(classes);
    Learnt learnt;
    for (int step = 0; step < 2; ++step) {
      autograd::Tape tape(&weights);
      nn::Context context;
      context.batch = &batch;
      context.tape = &tape;
      context.loss_factor = 1 / static_cast<double>(images.size(0));
      const nn::Variable loss = nn::run(model, context);
      loss.backward();
      learnt.losses.push_back(loss.value.item() * context.loss_factor);
      for (const auto& p : model.parameters) {
        const Tensor gradient = to_host(weights.gradient(p->id));
        if (step == 0) learnt.gradients.push_back(gradient);
        set(*p, [&](const Tensor& before, i64 i) {
          const double w = test::at(before, i), g = test::at(gradient, i);
          return p->statistic ? w + 0.1 * (g - w) : w - 0.1 * g;
        });
      }
      weights.forget();
    }
    for (const auto& p : model.parameters) learnt.weights.push_back(to_host(p->value()));
    return learnt;
  }

  void check(const Build& build, i64 extent, DType dtype, double near) {
    SCOPED_TRACE(to_string(dtype));
    const Tensor images = test::random({2, 3, extent, extent}, dtype, 1), classes = test::ints({3, 7}, {2});
    const Learnt got = gpu().run([&] { return learn(build, images, classes); }), want = learn(build, images, classes);
    ASSERT_EQ(got.losses.size(), 2U);
    for (size_t step = 0; step < 2; ++step) EXPECT_NEAR(got.losses[step], want.losses[step], near) << step;
    EXPECT_LT(want.losses[1], want.losses[0]) << "it learns";
    ASSERT_EQ(got.gradients.size(), want.gradients.size());
    for (size_t p = 0; p < want.gradients.size(); ++p) test::expect_near(got.gradients[p], want.gradients[p], near, near, "gradient");
    for (size_t p = 0; p < want.weights.size(); ++p) test::expect_near(got.weights[p], want.weights[p], near, near, "weight");
  }

 private:
  // Sets each element i of p to next(old values, i), rounded to p's type.
  static void set(const nn::Parameter& p, const std::function<double(const Tensor&, i64)>& next) {
    const Tensor before = to_host(p.value());
    std::vector<float> narrow(static_cast<size_t>(p.elems()));
    std::vector<double> wide(narrow.size());
    for (size_t i = 0; i < wide.size(); ++i) {
      wide[i] = next(before, static_cast<i64>(i));
      narrow[i] = static_cast<float>(wide[i]);
    }
    const auto* values =
        p.dtype == DType::f64 ? reinterpret_cast<const std::byte*>(wide.data()) : reinterpret_cast<std::byte*>(narrow.data());
    transfer(p.value().raw(), values, before.bytes());
  }
};

// Compares a CIFAR network with the CPU's. Sums have another order there. Losses are near 2, gradients smaller: tolerances are absolute.
TEST_F(GpuImages, CifarNetLearnsAsOnTheCpu) {
  const auto cifar_net = [](DType dtype) { return models::build(models::preset("cifar-net"), dtype); };
  check(cifar_net, 32, DType::f64, 1e-12);
  check(cifar_net, 32, DType::f32, 1e-5);
}

// Compares a ResNet that has convolutions of stride 2, windows of one element in the shortcut, and batch statistics.
TEST_F(GpuImages, AResNetLearnsAsOnTheCpu) {
  check([](DType dtype) { return models::build_resnet({.widths = {4, 6}, .blocks = {1, 1}}, {3, 8, 8}, 10, dtype); }, 8, DType::f64, 1e-11);
}

}  // namespace
}  // namespace spillway::gpu_images_cuda_test
