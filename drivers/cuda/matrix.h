/* The matrices of a model in packed form (kernels/cuda/step.h): what shape each gets, which of them
 * stand in one, and where on the card. Part of list_build, which goes through the model.
 */
#ifndef ZIGCUDA_CUDA_MATRIX_H
#define ZIGCUDA_CUDA_MATRIX_H

#include "drivers/cuda/list.h"

/* One preparation of the rows does for both. */
bool matrix_same_input(const struct weight *a, const struct weight *b);

/* Can gate and up be one matrix, whose blocks of 16 outputs are 8 gates and their 8 ups? */
bool matrix_can_share(const struct weight *a, const struct weight *b);

/* struct input.group */
u32 matrix_input_group(const struct weight *w);

/* Each adds to l->weights and carves; returns the first that it added. A weight of its own; */
struct list_weight *matrix_place(struct list *l, struct vram *s, const struct weight *from);

/* the same whose values lie in pinned memory of the host; */
struct list_weight *matrix_place_in_host(struct list *l, struct vram *s, const struct weight *from,
                                         const struct list_table *t);

/* weights below one another in one matrix where their forms agree, else each in its own; */
struct list_weight *matrix_place_rows(struct list *l, struct vram *s, const struct weight *from,
                                      u32 n);

/* gate and up in one (matrix_can_share; `ups` is `gates` where one weight holds both, gates
 * first); */
struct list_weight *matrix_place_pair(struct list *l, struct vram *s, const struct weight *gates,
                                      const struct weight *ups);

/* all experts below one another (matrix_takes): their downs; else their gates and ups, as by
 * matrix_place_pair, or ups alone. */
struct list_weight *matrix_place_experts(struct list *l, struct vram *s, const struct mixture *x,
                                         bool downs);

/* ERR_DEVICE: a GPU does not compute this mixture of experts, or these heads. */
MUST enum err matrix_takes(const struct model *m, struct err_text *e);

/* Are the model's experts of MXFP4? */
bool matrix_has_fp4(const struct model *m);

/* Fills order[w->to.k] for a matrix that makes_order; counts[groups] is work space. */
void matrix_order(const struct list_weight *w, u32 *order, u32 *counts);

/* Bytes of the values of a weight, packed. */
size_t matrix_packed_bytes(const struct weight *w);

/* Bytes of packed matrices, values, scales, zeros, that an operation reads; of experts, that one
 * token reads. */
u64 matrix_op_bytes(const struct op *op);

#endif
