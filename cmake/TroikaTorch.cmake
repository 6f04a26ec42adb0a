# Imported targets for the C++ part of the PyPI wheel; shared with the installed package.
# Needs TROIKA_TORCH_DIR. libtorch.so is left out on purpose: it pulls in all of CUDA.
if(NOT TARGET troika::torch)
  add_library(troika::c10 SHARED IMPORTED)
  set_target_properties(troika::c10 PROPERTIES IMPORTED_LOCATION "${TROIKA_TORCH_DIR}/lib/libc10.so")
  # -idirafter: the wheel brings an fmt of its own, whose headers must not hide the fmt library that we link.
  target_compile_options(troika::c10 INTERFACE
    "SHELL:-idirafter \"${TROIKA_TORCH_DIR}/include\""
    "SHELL:-idirafter \"${TROIKA_TORCH_DIR}/include/torch/csrc/api/include\"")
  # The OpenMP that torch itself runs on: a second one in the process would have threads of its own.
  add_library(troika::gomp SHARED IMPORTED)
  set_target_properties(troika::gomp PROPERTIES IMPORTED_LOCATION "${TROIKA_TORCH_DIR}/lib/libgomp.so.1")
  add_library(troika::torch SHARED IMPORTED)
  set_target_properties(troika::torch PROPERTIES
    IMPORTED_LOCATION "${TROIKA_TORCH_DIR}/lib/libtorch_cpu.so"
    INTERFACE_LINK_LIBRARIES "troika::c10;troika::gomp")
  # libcudart and libcupti are found through libtorch_cpu's own RPATH; only the linker's check must be told.
  target_link_options(troika::torch INTERFACE
    "LINKER:-rpath-link,${TROIKA_TORCH_DIR}/../nvidia/cu13/lib" "LINKER:-rpath,${TROIKA_TORCH_DIR}/lib")
endif()
