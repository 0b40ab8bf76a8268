"""Human evaluation: is it adequate, is it fluent, which is better?"""
