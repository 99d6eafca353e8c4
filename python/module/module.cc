// Defines the extension module spillway._core.
#include "python/module/arrays.h"
#include "python/module/copies.h"
#include "python/module/errors.h"
#include "python/module/interpreter.h"
#include "python/module/model.h"
#include "python/module/own_model.h"
#include "python/module/random.h"
#include "python/module/settings.h"

NB_MODULE(_core, module) {
  using namespace spillway::python;
  bind_interpreter(module);
  bind_errors(module);
  bind_runtime(module);
  bind_no_grad(module);
  auto tensor = bind_tensor(module);
  bind_methods(module, tensor);
  bind_operators(module, tensor);
  bind_in_place(tensor);
  bind_indexing(module, tensor);
  bind_reductions(module, tensor);
  bind_operations(module, tensor);
  bind_shaping(module, tensor);
  bind_creation(module);
  bind_tokenizer(module);
  bind_model(module);
  bind_optimizers(module);
  bind_training(module);
  bind_random(module);
  bind_own_model(module);
  bind_own_training(module);
  bind_commands(module);
  bind_reports(module);
  refuse_copies(module);
}
