# Own kernels are compiled once for each instruction set, with its flags: see src/cpu/vector/vector.h. LK_ISAS lists the sets of the
# library. Tests link `lockstep_emulated`, which runs code for wide vectors on any processor with AVX2.

set(LK_KERNELS "")
foreach(name isa_table blocks/direct_conv blocks/winograd_conv blocks/winograd_points dense/dense_product lanes/lanes_conv lanes/lanes_grad
             lanes/lanes_pool lanes/lanes_winograd lanes/lanes_winograd_points)
  list(APPEND LK_KERNELS ${PROJECT_SOURCE_DIR}/src/cpu/${name}.c)
endforeach()

# lk_kernels(isa kind flags...): makes the library lockstep_ISA of LK_KERNELS.
function(lk_kernels isa kind)
  string(TOUPPER ${isa} macro)
  add_library(lockstep_${isa} ${kind} ${LK_KERNELS})
  target_include_directories(lockstep_${isa} PRIVATE include src)
  target_compile_definitions(lockstep_${isa} PRIVATE LK_VECTOR_${macro})
  target_compile_options(lockstep_${isa} PRIVATE -mavx2 -mfma ${ARGN})
endfunction()

set(LK_ISAS "")
if(ONEDNN_FOUND AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  lk_kernels(avx2 OBJECT)
  lk_kernels(avx512 OBJECT -mavx512f -mavx512vl -mavx512bw -mavx512dq)
  lk_kernels(emulated STATIC)
  set(LK_ISAS avx2 avx512)
endif()
