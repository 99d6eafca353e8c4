# Python's tests of tensors and models on emulated GPUs: the preset `emulated`, of which nothing else is built.
find_package(Python 3.10 COMPONENTS Interpreter)
set(tests ${PROJECT_SOURCE_DIR}/python/tests)
add_test(NAME python/SoakGpu.KeepsItsTests
         COMMAND ${Python_EXECUTABLE} -m pytest -q -p no:cacheprovider ${tests}/test_gpu.py ${tests}/test_arrays.py ${tests}/test_autograd.py ${tests}/test_models.py)
set_tests_properties(python/SoakGpu.KeepsItsTests PROPERTIES LABELS soak TIMEOUT 1200 FAIL_REGULAR_EXPRESSION "skipped"
  ENVIRONMENT "SPILLWAY_EMULATED_GPUS=2;PYTHONPATH=${PROJECT_BINARY_DIR}/python:${PROJECT_SOURCE_DIR}/build/tools/python;PYTHONDONTWRITEBYTECODE=1;SPILLWAY_SOURCE=${PROJECT_SOURCE_DIR}")
