#include "nn/hook.h"

#include "base/error.h"

namespace spillway::nn {
namespace {

std::string described(const Variable& v) {
  if (!v.value.defined()) return "nothing";
  return std::string(to_string(v.dtype())) + " " + to_string(v.shape());
}

class Hooked final : public Module {
 public:
  Hooked(std::unique_ptr<Module> block, ForwardHook hook) : block_(std::move(block)), hook_(std::move(hook)) {}
  Variable forward(const Variable& x, const Context& context) const override {
    const Variable output = block_->forward(x, context);
    Variable changed = hook_(x, output, context);
    if (described(changed) != described(output))
      throw Error(ErrorCode::bug,
                  "[hook] expected the hook to return the output or another " + described(output) + ", got " + described(changed));
    return changed;
  }
  std::vector<ParameterUse> parameters() const override { return block_->parameters(); }
  bool backward_reads_parameters() const override { return block_->backward_reads_parameters(); }
  bool weight_gradients_read_parameters() const override { return block_->weight_gradients_read_parameters(); }
  i64 logits_again_bytes(i64 rows) const override { return block_->logits_again_bytes(rows); }

 private:
  const std::unique_ptr<Module> block_;
  const ForwardHook hook_;
};

}  // namespace

std::unique_ptr<Module> with_hook(std::unique_ptr<Module> block, ForwardHook hook) {
  return std::make_unique<Hooked>(std::move(block), std::move(hook));
}

}  // namespace spillway::nn
